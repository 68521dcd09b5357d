//! x86-64: addresses, frames, flow of control.

use super::fixture::check;
use dyad_abi::Isa;

/// Addresses of the native stack.
const ADDRESSES: &str = "
    stored_address         | FrameAddress         | leaq -8(%rbp), %rax; movq %rax, (%rdi)
    pushed_address         | FrameAddress         | leaq -8(%rbp), %rax; movq %rax, (%rsp)
    passed_address         | FrameAddress         | leaq -8(%rbp), %rdi; callq plain
    passed_to_a_site       | FrameAddress         | leaq -8(%rbp), %r12; site callq leaf
    returned_address       | FrameAddress         | movq %rsp, %rax
    kept_address           | FrameAddress RegisterAcrossSite | leaq -8(%rbp), %rbx; site callq leaf; movq $1, (%rbx)
    kept_over_a_plain_call |                      | leaq -8(%rbp), %rbx; movq $1, (%rbx); callq plain; addq (%rbx), %rax
    compared_address       | FrameAddress         | cmpq %rsp, %rdi; je 1f; nop; 1:
    masked_address         | FrameAddress         | leaq 8(%rsp), %rax; andq $-16, %rax
    half_an_address        | FrameAddress         | movl %esp, %eax
    conditional_address    | FrameAddress         | movq %rdi, %rax; testq %rdi, %rdi; jne 1f; leaq (%rsp), %rax; 1: movq $1, (%rax)
    vector_of_an_address   | FrameAddress         | movq %rsp, %xmm0
    string_store           | FrameAddress         | movq %rsp, %rdi; movl $32, %ecx; xorl %eax, %eax; rep stosb
    frame_pointer_stored   | FrameAddress         | movq %rbp, (%rdi)
    return_address_read    | FrameRecord          | movq 8(%rbp), %rax
    outer_frame_read       | FrameRecord          | movq (%rbp), %rax
    direct_use             |                      | leaq -16(%rbp), %rdx; movq %rdi, 8(%rdx); addq $8, %rdx; addq (%rdx), %rax
        xorl %edx, %edx
";

/// Frames.
const FRAMES: &str = "
    no_record, bare 8                  | FrameRecord          | subq $8, %rsp; site callq leaf; addq $8, %rsp; retq
    record_not_written, bare 8         | FrameRecord BadReturn | subq $8, %rsp; movq %rsp, %rbp; site callq leaf; addq $8, %rsp; retq
    record_elsewhere, bare 24          | FrameRecord BadReturn SlotAcrossSite FrameAddress | subq $8, %rsp; pushq %rbp
        movq %rsp, %rbp; subq $8, %rsp; site callq leaf; addq $8, %rsp; popq %rbp; addq $8, %rsp; retq
    frame_pointer_lost                 | FrameRecord          | movq %rdi, %rbp; site callq leaf; leaq 32(%rsp), %rbp
    record_overwritten                 | BadReturn FrameRecord | movq %rdi, (%rbp)
    wrong_size, bare 48                | FrameSize            | pushq %rbp; movq %rsp, %rbp; subq $32, %rsp; site callq leaf
        addq $32, %rsp; popq %rbp; retq
    pushed_argument                    | FrameSize            | pushq %rdi; site callq leaf; addq $8, %rsp
    balanced_push                      |                      | pushq %rdi; popq %rdx; addq %rdx, %rax
    dynamic                            | DynamicStack FrameAddress | subq %rdi, %rsp; movq %rbp, %rsp; subq $32, %rsp
    realigned                          | DynamicStack FrameAddress | andq $-32, %rsp; movq %rbp, %rsp; subq $32, %rsp
    unequal_paths, bare 8              | BadReturn DynamicStack | pushq %rbp; movq %rsp, %rbp; testq %rdi, %rdi; je 1f; pushq %rax
        1: popq %rbp; retq
    forgotten_pop, bare 8              | BadReturn            | pushq %rbp; movq %rsp, %rbp; retq
    frame_pointer_not_restored, bare 8 | BadReturn            | pushq %rbp; movq %rsp, %rbp; addq $8, %rsp; retq
    large_return, bare 8               | UnknownInstruction   | retq $16
";

/// Flow of control, and instructions.
const FLOW: &str = "
    jump_table                         | IndirectJump Unreached | jmpq *%rdi; nop; 1: movl $1, %eax
    jump_table_in_memory               | IndirectJump Unreached | jmpq *0x42000000(,%rdi,8)
    unreached                          | Unreached            | jmp 1f; movl $1, %eax; 1:
    padding                            |                      | jmp 1f; int3; int3; nopw %cs:0(%rax,%rax); 1:
    into_an_instruction, bare 8        | FlowLeaves Unreached | jmp 1f+1; 1: movl $0x90909090, %eax; retq
    off_the_end, bare 8                | FlowLeaves           | movl $1, %eax
    behind_a_call_that_stays, bare 8   |                      | pushq %rbp; movq %rsp, %rbp; testq %rdi, %rdi; je 1f; popq %rbp; retq
        1: callq never
    behind_a_call_that_returns, bare 8 | FlowLeaves           | pushq %rbp; movq %rsp, %rbp; callq plain
    tail_call_of_spine, bare 8         | TailCall             | jmp reader
    tail_call_of_leaf, bare 8          | TailCall             | jmp leaf
    tail_call_with_frame, bare 8       | TailCall             | pushq %rbp; movq %rsp, %rbp; jmp plain
    tail_call                          |                      | testq %rdi, %rdi; je 1f; addq $32, %rsp; popq %rbp; jmp plain; 1:
    call_without_site                  | CallWithoutSite      | callq leaf
    call_of_spine_without_site         | CallWithoutSite      | movq %rdi, %r12; callq reader
    no_instruction                     | UnknownInstruction Unreached | .byte 0x06
    avx                                | UnknownInstruction Unreached | vaddsd %xmm0, %xmm1, %xmm2
    x87                                | UnknownInstruction   | fld1; fstp %st(0)
    rounding                           | ForbiddenInstruction | ldmxcsr (%rdi)
    rounding_read                      | ForbiddenInstruction | stmxcsr (%rsp)
    segment_base                       | ForbiddenInstruction | wrfsbase %rdi
    segment                            | ForbiddenInstruction | movw %di, %fs
    kernel_entry                       | ForbiddenInstruction | syscall
    direction                          | ForbiddenInstruction | std; cld
    thread_local                       | ForbiddenInstruction | addq %fs:0, %rax
    gs                                 | UnknownInstruction   | movq %gs:0, %rax
";

#[test]
fn escaping_addresses_are_found() {
    check(Isa::X86_64, "addresses", ADDRESSES);
}

#[test]
fn unusual_frames_are_found() {
    check(Isa::X86_64, "frames", FRAMES);
}

#[test]
fn unclear_flow_and_instructions_are_found() {
    check(Isa::X86_64, "flow", FLOW);
}
