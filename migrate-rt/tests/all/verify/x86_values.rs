//! x86-64: values in registers and slots.

use super::fixture::Shape::{Bare, Framed};
use super::fixture::{Case, case, check};
use dyad_abi::Isa;
use migrate_rt::verify::Kind::*;

/// Values that live across a site.
const ACROSS: &[Case] = &[
    case(
        "callee_saved",
        Framed,
        "movq %rdi, %rbx; site callq leaf; addq %rbx, %rax",
        &[RegisterAcrossSite],
    ),
    case(
        "caller_saved",
        Framed,
        "movq %rdi, %rsi; site callq leaf; addq %rsi, %rax",
        &[RegisterAcrossSite],
    ),
    case(
        "returned_copy",
        Framed,
        "movq %rdi, %r12; site callq leaf; movq %r12, %rax",
        &[RegisterAcrossSite],
    ),
    case(
        "handed_on_copy",
        Framed,
        "movq %rdi, %rbx; site callq leaf; movq %rbx, %rdi; callq plain",
        &[RegisterAcrossSite],
    ),
    case(
        "as_address",
        Framed,
        "site callq leaf; movl (%rbx), %eax",
        &[RegisterAcrossSite],
    ),
    case(
        "as_index",
        Framed,
        "site callq leaf; movl (%rax,%rbx,4), %eax",
        &[RegisterAcrossSite],
    ),
    case(
        "stored",
        Framed,
        "site callq leaf; movq %rbx, (%rax)",
        &[RegisterAcrossSite],
    ),
    case(
        "argument_of_spine",
        Framed,
        "site callq leaf; site callq reader",
        &[RegisterAcrossSite],
    ),
    case(
        "argument_of_unknown",
        Framed,
        "site callq leaf; site callq *%rax",
        &[RegisterAcrossSite],
    ),
    case(
        "vector",
        Framed,
        "movaps %xmm0, %xmm9; site callq leaf; addsd %xmm9, %xmm1; ucomisd %xmm1, %xmm0",
        &[RegisterAcrossSite],
    ),
    case(
        "vector_upper",
        Framed,
        "site callq leaf; cvtsi2sd %eax, %xmm8; movups %xmm8, (%rax)",
        &[RegisterAcrossSite],
    ),
    case(
        "vector_integer",
        Framed,
        "site callq leaf; movq %xmm12, %rdx; testq %rdx, %rdx; je 1f; nop; 1:",
        &[RegisterAcrossSite],
    ),
    case(
        "flags",
        Framed,
        "cmpq %rdi, %rsi; site callq leaf; je 1f; xorl %eax, %eax; 1:",
        &[RegisterAcrossSite],
    ),
    // What the back end makes of a fence reads a slot, but nobody learns what is in it.
    case("fence", Framed, "site callq leaf; lock orl $0, (%rsp)", &[]),
    case(
        "fence_that_is_none",
        Framed,
        "site callq leaf; lock orl $1, (%rsp)",
        &[SlotAcrossSite],
    ),
    case(
        "fence_elsewhere",
        Framed,
        "site callq leaf; lock orl $0, (%rbx)",
        &[RegisterAcrossSite],
    ),
    case(
        "fence_flags",
        Framed,
        "site callq leaf; lock orl $0, (%rsp); je 1f; nop; 1:",
        &[UndefinedRegister],
    ),
    case(
        "flags_carry",
        Framed,
        "cmpq %rdi, %rsi; site callq leaf; sbbq %rdx, %rdx; addq %rdx, %rax",
        &[RegisterAcrossSite],
    ),
    case(
        "flags_of_no_shift",
        Framed,
        "site callq leaf; movl $1, %edx; shlq %cl, %rdx; jb 1f; nop; 1:",
        &[UndefinedRegister],
    ),
    case(
        "cmov",
        Framed,
        "site callq leaf; testq %rax, %rax; cmovneq %r13, %rax",
        &[RegisterAcrossSite],
    ),
    case(
        "cmov_old",
        Framed,
        "site callq leaf; testq %rax, %rax; cmovneq %rax, %r13; movq %r13, (%rax)",
        &[RegisterAcrossSite],
    ),
    case(
        "byte_write",
        Framed,
        "site callq leaf; movb $1, %bl; movq %rbx, %rcx; addq %rcx, %rax; movq %rax, (%rdx)",
        &[RegisterAcrossSite],
    ),
    case(
        "word_write",
        Framed,
        "site callq leaf; movw $1, %bx; addl %ebx, %eax; movl %eax, (%rdx)",
        &[RegisterAcrossSite],
    ),
    case(
        "high_byte_write",
        Framed,
        "site callq leaf; movb $1, %bh; movzbl %bl, %ebx; addl %ebx, %eax",
        &[RegisterAcrossSite],
    ),
    case(
        "setcc_write",
        Framed,
        "site callq leaf; testq %rax, %rax; sete %bl; addl %ebx, %eax; cmpl $3, %eax",
        &[RegisterAcrossSite],
    ),
    case(
        "flags_of_a_sum",
        Framed,
        "site callq leaf; addq $-1, %rbx; je 1f; nop; 1:",
        &[RegisterAcrossSite],
    ),
    case(
        "mask_keeps_a_byte",
        Framed,
        "site callq leaf; movb $1, %bl; andl $0x1ff, %ebx; cmpl $3, %ebx",
        &[RegisterAcrossSite],
    ),
    case(
        "high_bytes_come_down",
        Framed,
        "site callq leaf; movb $1, %bl; leal 1(%rbx), %edx; shrl $8, %edx; movb %dl, (%rax)",
        &[RegisterAcrossSite],
    ),
    case(
        "bytes_alone",
        Framed,
        "site callq leaf; movb $1, %bl; leal 1(%rbx), %edx; addl %ebx, %edx; shll $2, %edx; xorl %ebx, %edx; \
         imull $3, %edx, %edx; testb %al, %al; cmovel %ebx, %edx; movb %dl, (%rax); andl $7, %edx; movq %rdx, (%rax)",
        &[],
    ),
    case(
        "word_alone_shifted",
        Framed,
        "site callq leaf; movw $1, %bx; movl %eax, %ecx; shll %cl, %ebx; movw %bx, (%rax)",
        &[],
    ),
    case(
        "word_shifted_into_the_rest",
        Framed,
        "site callq leaf; movw $1, %bx; movl %eax, %ecx; shll %cl, %ebx; movl %ebx, (%rax)",
        &[RegisterAcrossSite],
    ),
    case(
        "shifted_by_what_is_stale",
        Framed,
        "site callq leaf; movl $1, %edx; movq %rbx, %rcx; shll %cl, %edx; movw %dx, (%rax)",
        &[RegisterAcrossSite],
    ),
    case(
        "xchg_memory",
        Framed,
        "site callq leaf; xchgq %rbx, (%rax)",
        &[RegisterAcrossSite],
    ),
    case(
        "xadd_memory",
        Framed,
        "site callq leaf; lock xaddq %rbx, (%rax)",
        &[RegisterAcrossSite],
    ),
    case(
        "cmpxchg_old",
        Framed,
        "site callq leaf; movq %rax, %rdx; lock cmpxchgq %rsi, (%rdx)",
        &[RegisterAcrossSite],
    ),
    case(
        "string_copy",
        Framed,
        "site callq leaf; movl $8, %ecx; movq %rax, %rdi; rep movsb",
        &[RegisterAcrossSite],
    ),
    case(
        "divide_upper",
        Framed,
        "site callq leaf; movq $3, %rdx; movq $3, %rsi; divq %rsi; mulq %rdi",
        &[RegisterAcrossSite],
    ),
    case(
        "sub_same_is_no_read",
        Framed,
        "site callq leaf; subl %ebx, %ebx; xorps %xmm9, %xmm9; pcmpeqd %xmm8, %xmm8; addl %ebx, %eax; movups %xmm9, (%rcx)",
        &[],
    ),
    case(
        "add_same_is_a_read",
        Framed,
        "site callq leaf; addl %ebx, %ebx; movl %ebx, (%rcx)",
        &[RegisterAcrossSite],
    ),
    case(
        "one_path_only",
        Framed,
        "testq %rdi, %rdi; je 1f; site callq leaf; 1: addq %rsi, (%rax)",
        &[RegisterAcrossSite],
    ),
    case(
        "around_a_loop",
        Framed,
        "movl $3, %ebx; 1: addl %ebx, %eax; site callq leaf; decl %eax; jne 1b",
        &[RegisterAcrossSite],
    ),
];

/// Bit scans, which leave their destination alone if there is no bit.
const SCANS: &[Case] = &[
    case(
        "scan",
        Framed,
        "site callq leaf; bsrq %rax, %rbx; movq %rbx, (%rax)",
        &[RegisterAcrossSite],
    ),
    case(
        "scan_of_set_bit",
        Framed,
        "site callq leaf; orq $1, %rax; bsrq %rax, %rbx; movq %rbx, (%rax)",
        &[],
    ),
    case(
        "scan_of_set_bit_32",
        Framed,
        "site callq leaf; orl $4, %eax; nop; bsfl %eax, %ebx; movl %ebx, (%rdx)",
        &[],
    ),
    case(
        "scan_after_or_with_nothing",
        Framed,
        "site callq leaf; orq $0, %rax; bsrq %rax, %rbx",
        &[RegisterAcrossSite],
    ),
    case(
        "scan_of_changed",
        Framed,
        "site callq leaf; orq $1, %rax; decq %rax; bsrq %rax, %rbx",
        &[RegisterAcrossSite],
    ),
    case(
        "scan_of_another",
        Framed,
        "site callq leaf; orq $1, %rdx; bsrq %rax, %rbx",
        &[RegisterAcrossSite],
    ),
    case(
        "scan_with_another_way_in",
        Framed,
        "site callq leaf; testq %rdx, %rdx; jne 1f; orq $1, %rax; 1: bsrq %rax, %rbx",
        &[RegisterAcrossSite],
    ),
    case(
        "scan_after_test",
        Framed,
        "site callq leaf; testq %rax, %rax; je 1f; bsrq %rax, %rbx; movq %rbx, (%rax); 1:",
        &[],
    ),
    case(
        "scan_after_wrong_test",
        Framed,
        "site callq leaf; testq %rax, %rax; jne 1f; bsrq %rax, %rbx; 1:",
        &[RegisterAcrossSite],
    ),
    case(
        "scan_after_narrow_test",
        Framed,
        "site callq leaf; testq %rax, %rax; je 1f; bsrl %eax, %ebx; 1:",
        &[RegisterAcrossSite],
    ),
    case(
        "scan_to_a_default",
        Framed,
        "site callq leaf; movl $63, %ebx; bsrq %rax, %rbx; movq %rbx, (%rax)",
        &[],
    ),
    case(
        "scan_of_across",
        Framed,
        "site callq leaf; orq $1, %rbx; bsrq %rbx, %rax",
        &[RegisterAcrossSite],
    ),
];

/// Slots of the native stack.
const SLOTS: &[Case] = &[
    case(
        "spilled",
        Framed,
        "movq %rdi, -8(%rbp); site callq leaf; addq -8(%rbp), %rax",
        &[SlotAcrossSite],
    ),
    case(
        "reloaded",
        Framed,
        "movq %rdi, 8(%rsp); site callq leaf; movq 8(%rsp), %rdx",
        &[SlotAcrossSite],
    ),
    case(
        "spilled_vector",
        Framed,
        "movaps %xmm0, (%rsp); site callq leaf; movaps (%rsp), %xmm1",
        &[SlotAcrossSite],
    ),
    case(
        "narrow_store",
        Framed,
        "site callq leaf; movl %eax, (%rsp); movq (%rsp), %rdx",
        &[SlotAcrossSite],
    ),
    case(
        "narrow_store_first",
        Framed,
        "movl %edi, (%rsp); movq (%rsp), %rdx",
        &[UndefinedSlot],
    ),
    case(
        "byte_of_two",
        Framed,
        "site callq leaf; movb %al, (%rsp); movzwl (%rsp), %edx",
        &[SlotAcrossSite],
    ),
    case(
        "overlapping",
        Framed,
        "site callq leaf; movq %rax, 4(%rsp); movq (%rsp), %rdx",
        &[SlotAcrossSite],
    ),
    case(
        "vector_of_a_double",
        Framed,
        "site callq leaf; movsd %xmm0, (%rsp); movups (%rsp), %xmm1",
        &[SlotAcrossSite],
    ),
    case(
        "one_path",
        Framed,
        "site callq leaf; testq %rax, %rax; je 1f; movq %rax, (%rsp); 1: movq (%rsp), %rdx",
        &[SlotAcrossSite],
    ),
    case(
        "stale_value",
        Framed,
        "site callq leaf; movq %rbx, (%rsp); addq (%rsp), %rax",
        &[SlotAcrossSite],
    ),
    case(
        "stale_value_loaded",
        Framed,
        "site callq leaf; movq %rbx, (%rsp); movq (%rsp), %rdx; addq %rdx, %rax",
        &[RegisterAcrossSite],
    ),
    case(
        "stale_value_on_one_path",
        Framed,
        "site callq leaf; movq %rbx, (%rsp); testq %rax, %rax; je 1f; movq %rax, (%rsp); 1: movq (%rsp), %rdx; addq %rdx, %rax",
        &[RegisterAcrossSite],
    ),
    case(
        "stale_value_on_the_other_path",
        Framed,
        "site callq leaf; movq %rax, (%rsp); testq %rax, %rax; je 1f; movq %rbx, (%rsp); 1: movq (%rsp), %rdx; addq %rdx, %rax",
        &[RegisterAcrossSite],
    ),
    case(
        "read_and_written",
        Framed,
        "movq %rdi, (%rsp); site callq leaf; addq $1, (%rsp)",
        &[SlotAcrossSite],
    ),
    case(
        "in_a_loop",
        Framed,
        "movq %rdi, (%rsp); 1: movq (%rsp), %rdx; site callq leaf; testq %rax, %rax; jne 1b",
        &[SlotAcrossSite],
    ),
    case(
        "below_a_call",
        Framed,
        "movq %rdi, -8(%rsp); callq plain; movq -8(%rsp), %rdx",
        &[UndefinedSlot],
    ),
    case(
        "far_below",
        Framed,
        "movq %rdi, -200(%rsp)",
        &[OutsideFrame],
    ),
    case(
        "in_the_callers_frame",
        Framed,
        "movq %rdi, 16(%rbp)",
        &[OutsideFrame],
    ),
    case(
        "indexed",
        Framed,
        "movq %rdi, (%rsp); movq %rsi, 8(%rsp); andl $1, %edx; movq (%rsp,%rdx,8), %rax",
        &[UnknownSlot],
    ),
    case(
        "indexed_store",
        Framed,
        "andl $1, %edx; movq %rdi, (%rsp,%rdx,8)",
        &[UnknownSlot],
    ),
    case(
        "incoming",
        Framed,
        "movq 16(%rbp), %rax; site callq leaf; movq 24(%rbp), %rdx",
        &[IncomingArgument],
    ),
    case(
        "saved",
        Bare(24),
        "pushq %rbp; movq %rsp, %rbp; pushq %r12; subq $8, %rsp; site callq leaf; addq $8, %rsp; popq %r12; popq %rbp; retq",
        &[SavedRegister],
    ),
    case(
        "saved_rbx",
        Bare(32),
        "pushq %rbp; movq %rsp, %rbp; pushq %rbx; subq $16, %rsp; site callq leaf; movq -8(%rbp), %rbx; addq $24, %rsp; popq %rbp; retq",
        &[SavedRegister],
    ),
];

#[test]
fn values_across_sites_are_found() {
    check(Isa::X86_64, "across", ACROSS);
}

#[test]
fn bit_scans_read_their_destination_unless_there_is_a_bit() {
    check(Isa::X86_64, "scans", SCANS);
}

#[test]
fn stale_slots_are_found() {
    check(Isa::X86_64, "slots", SLOTS);
}
