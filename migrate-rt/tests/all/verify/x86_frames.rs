//! x86-64: addresses, frames, flow of control.

use super::fixture::Shape::{Bare, Framed};
use super::fixture::{Case, case, check};
use dyad_abi::Isa;
use migrate_rt::verify::Kind::*;

/// Addresses of the native stack.
const ADDRESSES: &[Case] = &[
    case(
        "stored_address",
        Framed,
        "leaq -8(%rbp), %rax; movq %rax, (%rdi)",
        &[FrameAddress],
    ),
    case(
        "pushed_address",
        Framed,
        "leaq -8(%rbp), %rax; movq %rax, (%rsp)",
        &[FrameAddress],
    ),
    case(
        "passed_address",
        Framed,
        "leaq -8(%rbp), %rdi; callq plain",
        &[FrameAddress],
    ),
    case(
        "passed_to_a_site",
        Framed,
        "leaq -8(%rbp), %r12; site callq leaf",
        &[FrameAddress],
    ),
    case(
        "returned_address",
        Framed,
        "movq %rsp, %rax",
        &[FrameAddress],
    ),
    case(
        "kept_address",
        Framed,
        "leaq -8(%rbp), %rbx; site callq leaf; movq $1, (%rbx)",
        &[FrameAddress, RegisterAcrossSite],
    ),
    case(
        "kept_over_a_plain_call",
        Framed,
        "leaq -8(%rbp), %rbx; movq $1, (%rbx); callq plain; addq (%rbx), %rax",
        &[],
    ),
    case(
        "compared_address",
        Framed,
        "cmpq %rsp, %rdi; je 1f; nop; 1:",
        &[FrameAddress],
    ),
    case(
        "masked_address",
        Framed,
        "leaq 8(%rsp), %rax; andq $-16, %rax",
        &[FrameAddress],
    ),
    case(
        "half_an_address",
        Framed,
        "movl %esp, %eax",
        &[FrameAddress],
    ),
    case(
        "conditional_address",
        Framed,
        "movq %rdi, %rax; testq %rdi, %rdi; jne 1f; leaq (%rsp), %rax; 1: movq $1, (%rax)",
        &[FrameAddress],
    ),
    case(
        "vector_of_an_address",
        Framed,
        "movq %rsp, %xmm0",
        &[FrameAddress],
    ),
    case(
        "string_store",
        Framed,
        "movq %rsp, %rdi; movl $32, %ecx; xorl %eax, %eax; rep stosb",
        &[FrameAddress],
    ),
    case(
        "frame_pointer_stored",
        Framed,
        "movq %rbp, (%rdi)",
        &[FrameAddress],
    ),
    case(
        "return_address_read",
        Framed,
        "movq 8(%rbp), %rax",
        &[FrameRecord],
    ),
    case(
        "outer_frame_read",
        Framed,
        "movq (%rbp), %rax",
        &[FrameRecord],
    ),
    case(
        "direct_use",
        Framed,
        "leaq -16(%rbp), %rdx; movq %rdi, 8(%rdx); addq $8, %rdx; addq (%rdx), %rax; xorl %edx, %edx",
        &[],
    ),
];

/// Frames.
const FRAMES: &[Case] = &[
    case(
        "no_record",
        Bare(8),
        "subq $8, %rsp; site callq leaf; addq $8, %rsp; retq",
        &[FrameRecord],
    ),
    case(
        "record_not_written",
        Bare(8),
        "subq $8, %rsp; movq %rsp, %rbp; site callq leaf; addq $8, %rsp; retq",
        &[FrameRecord, BadReturn],
    ),
    case(
        "record_elsewhere",
        Bare(24),
        "subq $8, %rsp; pushq %rbp; movq %rsp, %rbp; subq $8, %rsp; site callq leaf; addq $8, %rsp; popq %rbp; addq $8, %rsp; retq",
        &[FrameRecord, BadReturn, SlotAcrossSite, FrameAddress],
    ),
    case(
        "frame_pointer_lost",
        Framed,
        "movq %rdi, %rbp; site callq leaf; leaq 32(%rsp), %rbp",
        &[FrameRecord],
    ),
    case(
        "record_overwritten",
        Framed,
        "movq %rdi, (%rbp)",
        &[BadReturn, FrameRecord],
    ),
    case(
        "wrong_size",
        Bare(48),
        "pushq %rbp; movq %rsp, %rbp; subq $32, %rsp; site callq leaf; addq $32, %rsp; popq %rbp; retq",
        &[FrameSize],
    ),
    case(
        "pushed_argument",
        Framed,
        "pushq %rdi; site callq leaf; addq $8, %rsp",
        &[FrameSize],
    ),
    case(
        "balanced_push",
        Framed,
        "pushq %rdi; popq %rdx; addq %rdx, %rax",
        &[],
    ),
    case(
        "dynamic",
        Framed,
        "subq %rdi, %rsp; movq %rbp, %rsp; subq $32, %rsp",
        &[DynamicStack, FrameAddress],
    ),
    case(
        "realigned",
        Framed,
        "andq $-32, %rsp; movq %rbp, %rsp; subq $32, %rsp",
        &[DynamicStack, FrameAddress],
    ),
    case(
        "unequal_paths",
        Bare(8),
        "pushq %rbp; movq %rsp, %rbp; testq %rdi, %rdi; je 1f; pushq %rax; 1: popq %rbp; retq",
        &[BadReturn, DynamicStack],
    ),
    case(
        "forgotten_pop",
        Bare(8),
        "pushq %rbp; movq %rsp, %rbp; retq",
        &[BadReturn],
    ),
    case(
        "frame_pointer_not_restored",
        Bare(8),
        "pushq %rbp; movq %rsp, %rbp; addq $8, %rsp; retq",
        &[BadReturn],
    ),
    case("large_return", Bare(8), "retq $16", &[UnknownInstruction]),
];

/// Flow of control, and instructions.
const FLOW: &[Case] = &[
    case(
        "jump_table",
        Framed,
        "jmpq *%rdi; nop; 1: movl $1, %eax",
        &[IndirectJump, Unreached],
    ),
    case(
        "jump_table_in_memory",
        Framed,
        "jmpq *0x42000000(,%rdi,8)",
        &[IndirectJump, Unreached],
    ),
    case(
        "unreached",
        Framed,
        "jmp 1f; movl $1, %eax; 1:",
        &[Unreached],
    ),
    case(
        "padding",
        Framed,
        "jmp 1f; int3; int3; nopw %cs:0(%rax,%rax); 1:",
        &[],
    ),
    case(
        "into_an_instruction",
        Bare(8),
        "jmp 1f+1; 1: movl $0x90909090, %eax; retq",
        &[FlowLeaves, Unreached],
    ),
    case("off_the_end", Bare(8), "movl $1, %eax", &[FlowLeaves]),
    case(
        "behind_a_call_that_stays",
        Bare(8),
        "pushq %rbp; movq %rsp, %rbp; testq %rdi, %rdi; je 1f; popq %rbp; retq; 1: callq never",
        &[],
    ),
    case(
        "behind_a_call_that_returns",
        Bare(8),
        "pushq %rbp; movq %rsp, %rbp; callq plain",
        &[FlowLeaves],
    ),
    case("tail_call_of_spine", Bare(8), "jmp reader", &[TailCall]),
    case("tail_call_of_leaf", Bare(8), "jmp leaf", &[TailCall]),
    case(
        "tail_call_with_frame",
        Bare(8),
        "pushq %rbp; movq %rsp, %rbp; jmp plain",
        &[TailCall],
    ),
    case(
        "tail_call",
        Framed,
        "testq %rdi, %rdi; je 1f; addq $32, %rsp; popq %rbp; jmp plain; 1:",
        &[],
    ),
    case(
        "call_without_site",
        Framed,
        "callq leaf",
        &[CallWithoutSite],
    ),
    case(
        "call_of_spine_without_site",
        Framed,
        "movq %rdi, %r12; callq reader",
        &[CallWithoutSite],
    ),
    case(
        "no_instruction",
        Framed,
        ".byte 0x06",
        &[UnknownInstruction, Unreached],
    ),
    case(
        "avx",
        Framed,
        "vaddsd %xmm0, %xmm1, %xmm2",
        &[UnknownInstruction, Unreached],
    ),
    case("x87", Framed, "fld1; fstp %st(0)", &[UnknownInstruction]),
    case(
        "rounding",
        Framed,
        "ldmxcsr (%rdi)",
        &[ForbiddenInstruction],
    ),
    case(
        "rounding_read",
        Framed,
        "stmxcsr (%rsp)",
        &[ForbiddenInstruction],
    ),
    case(
        "segment_base",
        Framed,
        "wrfsbase %rdi",
        &[ForbiddenInstruction],
    ),
    case("segment", Framed, "movw %di, %fs", &[ForbiddenInstruction]),
    case("kernel_entry", Framed, "syscall", &[ForbiddenInstruction]),
    case("direction", Framed, "std; cld", &[ForbiddenInstruction]),
    case(
        "thread_local",
        Framed,
        "addq %fs:0, %rax",
        &[ForbiddenInstruction],
    ),
    case("gs", Framed, "movq %gs:0, %rax", &[UnknownInstruction]),
];

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
