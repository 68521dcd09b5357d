//! x86-64: values in registers and slots.

use super::fixture::check;
use dyad_abi::Isa;

/// Values that live across a site.
const ACROSS: &str = "
    callee_saved               | RegisterAcrossSite | movq %rdi, %rbx; site callq leaf; addq %rbx, %rax
    caller_saved               | RegisterAcrossSite | movq %rdi, %rsi; site callq leaf; addq %rsi, %rax
    returned_copy              | RegisterAcrossSite | movq %rdi, %r12; site callq leaf; movq %r12, %rax
    handed_on_copy             | RegisterAcrossSite | movq %rdi, %rbx; site callq leaf; movq %rbx, %rdi; callq plain
    as_address                 | RegisterAcrossSite | site callq leaf; movl (%rbx), %eax
    as_index                   | RegisterAcrossSite | site callq leaf; movl (%rax,%rbx,4), %eax
    stored                     | RegisterAcrossSite | site callq leaf; movq %rbx, (%rax)
    argument_of_spine          | RegisterAcrossSite | site callq leaf; site callq reader
    argument_of_unknown        | RegisterAcrossSite | site callq leaf; site callq *%rax
    vector                     | RegisterAcrossSite | movaps %xmm0, %xmm9; site callq leaf; addsd %xmm9, %xmm1; ucomisd %xmm1, %xmm0
    vector_upper               | RegisterAcrossSite | site callq leaf; cvtsi2sd %eax, %xmm8; movups %xmm8, (%rax)
    vector_integer             | RegisterAcrossSite | site callq leaf; movq %xmm12, %rdx; testq %rdx, %rdx; je 1f; nop; 1:
    flags                      | RegisterAcrossSite | cmpq %rdi, %rsi; site callq leaf; je 1f; xorl %eax, %eax; 1:
    // What the back end makes of a fence reads a slot, but nobody learns what is in it.
    fence                      |                    | site callq leaf; lock orl $0, (%rsp)
    fence_that_is_none         | SlotAcrossSite     | site callq leaf; lock orl $1, (%rsp)
    fence_elsewhere            | RegisterAcrossSite | site callq leaf; lock orl $0, (%rbx)
    fence_flags                | UndefinedRegister  | site callq leaf; lock orl $0, (%rsp); je 1f; nop; 1:
    flags_carry                | RegisterAcrossSite | cmpq %rdi, %rsi; site callq leaf; sbbq %rdx, %rdx; addq %rdx, %rax
    flags_of_no_shift          | UndefinedRegister  | site callq leaf; movl $1, %edx; shlq %cl, %rdx; jb 1f; nop; 1:
    cmov                       | RegisterAcrossSite | site callq leaf; testq %rax, %rax; cmovneq %r13, %rax
    cmov_old                   | RegisterAcrossSite | site callq leaf; testq %rax, %rax; cmovneq %rax, %r13; movq %r13, (%rax)
    byte_write                 | RegisterAcrossSite | site callq leaf; movb $1, %bl; movq %rbx, %rcx; addq %rcx, %rax
        movq %rax, (%rdx)
    word_write                 | RegisterAcrossSite | site callq leaf; movw $1, %bx; addl %ebx, %eax; movl %eax, (%rdx)
    high_byte_write            | RegisterAcrossSite | site callq leaf; movb $1, %bh; movzbl %bl, %ebx; addl %ebx, %eax
    setcc_write                | RegisterAcrossSite | site callq leaf; testq %rax, %rax; sete %bl; addl %ebx, %eax; cmpl $3, %eax
    flags_of_a_sum             | RegisterAcrossSite | site callq leaf; addq $-1, %rbx; je 1f; nop; 1:
    mask_keeps_a_byte          | RegisterAcrossSite | site callq leaf; movb $1, %bl; andl $0x1ff, %ebx; cmpl $3, %ebx
    high_bytes_come_down       | RegisterAcrossSite | site callq leaf; movb $1, %bl; leal 1(%rbx), %edx; shrl $8, %edx
        movb %dl, (%rax)
    bytes_alone                |                    | site callq leaf; movb $1, %bl; leal 1(%rbx), %edx; addl %ebx, %edx
        shll $2, %edx; xorl %ebx, %edx; imull $3, %edx, %edx; testb %al, %al; cmovel %ebx, %edx; movb %dl, (%rax); andl $7, %edx
        movq %rdx, (%rax)
    word_alone_shifted         |                    | site callq leaf; movw $1, %bx; movl %eax, %ecx; shll %cl, %ebx; movw %bx, (%rax)
    word_shifted_into_the_rest | RegisterAcrossSite | site callq leaf; movw $1, %bx; movl %eax, %ecx; shll %cl, %ebx; movl %ebx, (%rax)
    shifted_by_what_is_stale   | RegisterAcrossSite | site callq leaf; movl $1, %edx; movq %rbx, %rcx; shll %cl, %edx; movw %dx, (%rax)
    xchg_memory                | RegisterAcrossSite | site callq leaf; xchgq %rbx, (%rax)
    xadd_memory                | RegisterAcrossSite | site callq leaf; lock xaddq %rbx, (%rax)
    cmpxchg_old                | RegisterAcrossSite | site callq leaf; movq %rax, %rdx; lock cmpxchgq %rsi, (%rdx)
    string_copy                | RegisterAcrossSite | site callq leaf; movl $8, %ecx; movq %rax, %rdi; rep movsb
    divide_upper               | RegisterAcrossSite | site callq leaf; movq $3, %rdx; movq $3, %rsi; divq %rsi; mulq %rdi
    sub_same_is_no_read        |                    | site callq leaf; subl %ebx, %ebx; xorps %xmm9, %xmm9; pcmpeqd %xmm8, %xmm8
        addl %ebx, %eax; movups %xmm9, (%rcx)
    add_same_is_a_read         | RegisterAcrossSite | site callq leaf; addl %ebx, %ebx; movl %ebx, (%rcx)
    one_path_only              | RegisterAcrossSite | testq %rdi, %rdi; je 1f; site callq leaf; 1: addq %rsi, (%rax)
    around_a_loop              | RegisterAcrossSite | movl $3, %ebx; 1: addl %ebx, %eax; site callq leaf; decl %eax; jne 1b
";

/// Bit scans, which leave their destination alone if there is no bit.
const SCANS: &str = "
    scan                       | RegisterAcrossSite | site callq leaf; bsrq %rax, %rbx; movq %rbx, (%rax)
    scan_of_set_bit            |                    | site callq leaf; orq $1, %rax; bsrq %rax, %rbx; movq %rbx, (%rax)
    scan_of_set_bit_32         |                    | site callq leaf; orl $4, %eax; nop; bsfl %eax, %ebx; movl %ebx, (%rdx)
    scan_after_or_with_nothing | RegisterAcrossSite | site callq leaf; orq $0, %rax; bsrq %rax, %rbx
    scan_of_changed            | RegisterAcrossSite | site callq leaf; orq $1, %rax; decq %rax; bsrq %rax, %rbx
    scan_of_another            | RegisterAcrossSite | site callq leaf; orq $1, %rdx; bsrq %rax, %rbx
    scan_with_another_way_in   | RegisterAcrossSite | site callq leaf; testq %rdx, %rdx; jne 1f; orq $1, %rax; 1: bsrq %rax, %rbx
    scan_after_test            |                    | site callq leaf; testq %rax, %rax; je 1f; bsrq %rax, %rbx; movq %rbx, (%rax); 1:
    scan_after_wrong_test      | RegisterAcrossSite | site callq leaf; testq %rax, %rax; jne 1f; bsrq %rax, %rbx; 1:
    scan_after_narrow_test     | RegisterAcrossSite | site callq leaf; testq %rax, %rax; je 1f; bsrl %eax, %ebx; 1:
    scan_to_a_default          |                    | site callq leaf; movl $63, %ebx; bsrq %rax, %rbx; movq %rbx, (%rax)
    scan_of_across             | RegisterAcrossSite | site callq leaf; orq $1, %rbx; bsrq %rbx, %rax
    scan_replaced_if_zero      |                    | site callq leaf; bsfq %rax, %rbx; cmovel %eax, %ebx; movq %rbx, (%rax)
    scan_replaced_whole        |                    | site callq leaf; bsrl %eax, %ebx; cmoveq %rax, %rbx; movq %rbx, (%rax)
    scan_replaced_unless_zero  | RegisterAcrossSite | site callq leaf; bsfq %rax, %rbx; cmovnel %eax, %ebx; movq %rbx, (%rax)
    scan_replaced_in_a_part    | RegisterAcrossSite | site callq leaf; bsfq %rax, %rbx; cmovew %ax, %bx; movq %rbx, (%rax)
    scan_replaced_by_a_test    | RegisterAcrossSite | site callq leaf; bsfq %rax, %rbx; testq %rax, %rax; cmovel %eax, %ebx
    scan_replaced_later        |                    | site callq leaf; bsfq %rax, %rbx; movl $9, %edx; cmovel %edx, %ebx; movq %rbx, (%rax)
    scan_replaced_too_late     | RegisterAcrossSite | site callq leaf; bsfq %rax, %rbx; movq %rbx, %rdx; cmovel %eax, %ebx
    scan_replaced_on_a_path    | RegisterAcrossSite | site callq leaf; bsfq %rax, %rbx; 1: cmovel %eax, %ebx; testb %al, %al; je 1b
    scan_taken                 |                    | site callq leaf; bsfq %rax, %rbx; movl $128, %edx; cmovneq %rbx, %rdx; movq %rdx, (%rax)
    scan_taken_in_32           |                    | site callq leaf; bsrl %eax, %ebx; cmovnel %ebx, %eax; movq $3, %rbx; movq %rbx, (%rax)
    scan_taken_and_read        | UndefinedRegister  | site callq leaf; bsfq %rax, %rbx; cmovneq %rbx, %rax; movq %rbx, (%rax)
    scan_taken_in_a_part       | RegisterAcrossSite | site callq leaf; bsfq %rax, %rbx; cmovnew %bx, %ax
    scan_taken_by_another_flag | RegisterAcrossSite | site callq leaf; bsfq %rax, %rbx; decq %rax; cmovneq %rbx, %rax
    scan_taken_if_zero         | RegisterAcrossSite | site callq leaf; bsfq %rax, %rbx; cmoveq %rbx, %rax
    scan_beside_a_replacement  | RegisterAcrossSite | site callq leaf; bsfq %rax, %rbx; cmovel %eax, %edx; movq %rbx, (%rax)
";

/// Sums with an operand or the result in a slot. Back ends make a word alone, and add the whole register to a slot, or
/// spill the register and compute with the slot.
const SUMS: &str = "
    word_computed_in_a_slot     |                                   | site callq leaf; movl %eax, (%rsp); lzcntw %ax, %bx; addl %ebx, (%rsp)
        movl (%rsp), %ecx; movw %cx, (%rdx); andl $0xffff, (%rsp); movl (%rsp), %ecx; movl %ecx, (%rdx)
    word_computed_with_a_slot   |                                   | site callq leaf; lzcntw %ax, %bx; movl %ebx, (%rsp); addl (%rsp), %eax
        incl (%rsp); imull $3, (%rsp), %ecx; addl %eax, %ecx; movw %cx, (%rdx)
    word_of_a_slot_used_whole   | RegisterAcrossSite                | site callq leaf; movl %eax, (%rsp); lzcntw %ax, %bx; addl %ebx, (%rsp)
        movl (%rsp), %ecx; movl %ecx, (%rdx)
    word_with_a_slot_used_whole | RegisterAcrossSite                | site callq leaf; movw $1, %bx; movl %ebx, (%rsp); xorl (%rsp), %eax
        movl %eax, (%rdx)
    slot_bytes_come_down        | SlotAcrossSite                    | site callq leaf; movl %eax, (%rsp); movw $1, %bx; orl %ebx, (%rsp)
        cmpw $3, 2(%rsp)
    slot_shifted_into_the_rest  | RegisterAcrossSite                | site callq leaf; movw $1, %bx; movl %ebx, (%rsp); shll $3, (%rsp)
        movl (%rsp), %ecx; testl %ecx, %ecx; je 1f; nop; 1:
    flags_of_a_sum_in_a_slot    | RegisterAcrossSite                | site callq leaf; movl %eax, (%rsp); movw $1, %bx; addl %ebx, (%rsp)
        je 1f; nop; 1:
    flags_of_a_sum_of_a_slot    | RegisterAcrossSite                | site callq leaf; movw $1, %bx; movl %ebx, (%rsp); addl (%rsp), %eax
        je 1f; nop; 1:
    stale_sum_in_a_slot         | RegisterAcrossSite                | site callq leaf; movl %eax, (%rsp); addl %ebx, (%rsp)
    stale_sum_of_a_slot         | SlotAcrossSite RegisterAcrossSite | site callq leaf; movl %ebx, (%rsp); addl (%rsp), %eax
    stale_slot_is_masked        | SlotAcrossSite                    | site callq leaf; movl %ebx, (%rsp); andl $7, (%rsp)
    slot_from_before            | SlotAcrossSite                    | movl %edi, (%rsp); site callq leaf; addl %eax, (%rsp)
    word_added_to_memory        | RegisterAcrossSite                | site callq leaf; movw $1, %bx; addl %ebx, (%rdx)
    address_added_to_a_slot     | FrameAddress                      | movq $1, (%rsp); leaq (%rsp), %rcx; addq %rcx, (%rsp)
    sum_in_the_frame_record     | FrameRecord BadReturn             | addq %rdi, (%rbp)
    sum_in_an_argument          | OutsideFrame                      | addq %rdi, 16(%rbp)
";

/// Slots of the native stack.
const SLOTS: &str = "
    spilled                       | SlotAcrossSite RegisterAcrossSite | movq %rdi, -8(%rbp); site callq leaf; addq -8(%rbp), %rax
    reloaded                      | SlotAcrossSite     | movq %rdi, 8(%rsp); site callq leaf; movq 8(%rsp), %rdx
    spilled_vector                | SlotAcrossSite     | movaps %xmm0, (%rsp); site callq leaf; movaps (%rsp), %xmm1
    narrow_store                  | SlotAcrossSite     | site callq leaf; movl %eax, (%rsp); movq (%rsp), %rdx
    narrow_store_first            | UndefinedSlot      | movl %edi, (%rsp); movq (%rsp), %rdx
    byte_of_two                   | SlotAcrossSite     | site callq leaf; movb %al, (%rsp); movzwl (%rsp), %edx
    overlapping                   | SlotAcrossSite     | site callq leaf; movq %rax, 4(%rsp); movq (%rsp), %rdx
    vector_of_a_double            | SlotAcrossSite     | site callq leaf; movsd %xmm0, (%rsp); movups (%rsp), %xmm1
    one_path                      | SlotAcrossSite     | site callq leaf; testq %rax, %rax; je 1f; movq %rax, (%rsp)
        1: movq (%rsp), %rdx
    stale_value                   | SlotAcrossSite RegisterAcrossSite | site callq leaf; movq %rbx, (%rsp); addq (%rsp), %rax
    stale_value_loaded            | RegisterAcrossSite | site callq leaf; movq %rbx, (%rsp); movq (%rsp), %rdx; addq %rdx, %rax
    stale_value_on_one_path       | RegisterAcrossSite | site callq leaf; movq %rbx, (%rsp); testq %rax, %rax; je 1f
        movq %rax, (%rsp); 1: movq (%rsp), %rdx; addq %rdx, %rax
    stale_value_on_the_other_path | RegisterAcrossSite | site callq leaf; movq %rax, (%rsp); testq %rax, %rax; je 1f
        movq %rbx, (%rsp); 1: movq (%rsp), %rdx; addq %rdx, %rax
    read_and_written              | SlotAcrossSite     | movq %rdi, (%rsp); site callq leaf; addq $1, (%rsp)
    in_a_loop                     | SlotAcrossSite     | movq %rdi, (%rsp); 1: movq (%rsp), %rdx; site callq leaf; testq %rax, %rax
        jne 1b
    below_a_call                  | UndefinedSlot      | movq %rdi, -8(%rsp); callq plain; movq -8(%rsp), %rdx
    far_below                     | OutsideFrame       | movq %rdi, -200(%rsp)
    in_the_callers_frame          | OutsideFrame       | movq %rdi, 16(%rbp)
    indexed                       | UnknownSlot        | movq %rdi, (%rsp); movq %rsi, 8(%rsp); andl $1, %edx; movq (%rsp,%rdx,8), %rax
    indexed_store                 | UnknownSlot        | andl $1, %edx; movq %rdi, (%rsp,%rdx,8)
    incoming                      | IncomingArgument   | movq 16(%rbp), %rax; site callq leaf; movq 24(%rbp), %rdx
    saved, bare 24                | SavedRegister      | pushq %rbp; movq %rsp, %rbp; pushq %r12; subq $8, %rsp; site callq leaf
        addq $8, %rsp; popq %r12; popq %rbp; retq
    saved_rbx, bare 32            | SavedRegister      | pushq %rbp; movq %rsp, %rbp; pushq %rbx; subq $16, %rsp; site callq leaf
        movq -8(%rbp), %rbx; addq $24, %rsp; popq %rbp; retq
";

#[test]
fn values_across_sites_are_found() {
    check(Isa::X86_64, "across", ACROSS);
}

#[test]
fn bit_scans_read_their_destination_unless_there_is_a_bit() {
    check(Isa::X86_64, "scans", SCANS);
}

#[test]
fn sums_in_slots_have_a_value_as_far_as_their_operands_have_one() {
    check(Isa::X86_64, "sums", SUMS);
}

#[test]
fn stale_slots_are_found() {
    check(Isa::X86_64, "slots", SLOTS);
}
