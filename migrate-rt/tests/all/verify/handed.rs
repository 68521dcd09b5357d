//! What calls and returns hand over: every byte that has a meaning, in registers and on the native stack, is from
//! after the last site.

use super::fixture::Shape::Framed;
use super::fixture::{Case, case, check};
use dyad_abi::Isa;
use migrate_rt::verify::Kind::*;

const X86_64: &[Case] = &[
    case(
        "handed_on_by_a_jump",
        Framed,
        "movq %rdi, %rbx; site callq leaf; testq %rax, %rax; je 1f; movq %rbx, %rdi; addq $32, %rsp; popq %rbp; jmp word; 1:",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "new_and_handed_on_by_a_jump",
        Framed,
        "site callq leaf; testq %rax, %rax; je 1f; movq %rax, %rdi; addq $32, %rsp; popq %rbp; jmp word; 1:",
        &[],
    )
    .gives(""),
    case(
        "stack_arguments_handed_on_by_a_jump",
        Framed,
        "site callq leaf; testq %rax, %rax; je 1f; addq $32, %rsp; popq %rbp; jmp stacked; 1:",
        &[IncomingArgument],
    )
    .gives(""),
    case(
        "saved_and_passed_on_the_stack",
        Framed,
        "movq %rdi, %rbx; site callq leaf; movq %rbx, (%rsp); movq %rax, 8(%rsp); movq %rax, 16(%rsp); \
         movq %rax, 24(%rsp); callq stacked",
        &[SlotAcrossSite],
    )
    .gives(""),
    case(
        "stack_argument_of_before",
        Framed,
        "movq %rdi, (%rsp); movq %rdi, 8(%rsp); movq %rdi, 16(%rsp); movq %rdi, 24(%rsp); site callq leaf; callq stacked",
        &[SlotAcrossSite],
    )
    .gives(""),
    case(
        "stack_arguments",
        Framed,
        "site callq leaf; movq %rax, (%rsp); movq %rax, 8(%rsp); movq %rax, 16(%rsp); movq %rax, 24(%rsp); callq stacked",
        &[],
    )
    .gives(""),
    case(
        "stack_argument_in_part",
        Framed,
        "site callq leaf; movl %eax, (%rsp); movq %rax, 8(%rsp); movq %rax, 16(%rsp); movq %rax, 24(%rsp); callq stacked",
        &[SlotAcrossSite],
    )
    .gives(""),
    case(
        "stack_argument_on_one_path",
        Framed,
        "site callq leaf; movq %rax, 8(%rsp); movq %rax, 16(%rsp); movq %rax, 24(%rsp); testq %rax, %rax; je 1f; \
         movq %rax, (%rsp); 1: callq stacked",
        &[SlotAcrossSite],
    )
    .gives(""),
    case(
        "stack_argument_that_nobody_wrote",
        Framed,
        "callq stacked",
        &[UndefinedSlot],
    )
    .gives(""),
    case(
        "byte_on_the_stack",
        Framed,
        "site callq leaf; movb %al, (%rsp); callq stacked_byte",
        &[],
    )
    .gives(""),
    case(
        "stack_argument_of_a_spine_call",
        Framed,
        "movq %rdi, (%rsp); site callq leaf; site:lllllllllllll callq leaf",
        &[SlotAcrossSite],
    )
    .gives(""),
    case(
        "stack_argument_through_a_pointer",
        Framed,
        "movq %rdi, (%rsp); site callq leaf; callq *%rax",
        &[SlotAcrossSite],
    )
    .gives("")
    .plain(&["lllllll"]),
    case(
        "byte_then_all_of_it",
        Framed,
        "site callq leaf; movb $1, %bl; movq %rbx, %rdi; callq word",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "byte_then_half_of_it",
        Framed,
        "site callq leaf; movb $1, %bl; movl %ebx, %edi; callq half",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "byte_of_an_argument",
        Framed,
        "site callq leaf; movb $1, %dil; callq word",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "byte_for_a_byte",
        Framed,
        "site callq leaf; movb $1, %bl; movl %ebx, %edi; callq byte",
        &[],
    )
    .gives(""),
    case(
        "byte_of_a_spine_argument",
        Framed,
        "site callq leaf; movb $1, %r12b; site:l callq leaf",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "byte_through_a_pointer",
        Framed,
        "site callq leaf; movb $1, %dil; callq *%rax",
        &[RegisterAcrossSite],
    )
    .gives("")
    .plain(&["b", "l"]),
    case(
        "pointer_that_the_ir_does_not_know",
        Framed,
        "callq *%rax",
        &[Convention],
    )
    .gives(""),
    case(
        "byte_given_back",
        Framed,
        "site callq leaf; movb $1, %bl; movq %rbx, %rax",
        &[],
    )
    .gives("b"),
    case(
        "byte_given_back_as_a_word",
        Framed,
        "site callq leaf; movb $1, %bl; movq %rbx, %rax",
        &[RegisterAcrossSite],
    )
    .gives("l"),
    case(
        "bit_given_back",
        Framed,
        "site callq leaf; movb $1, %bl; movl %ebx, %eax",
        &[],
    )
    .gives("Z"),
    case(
        "extended_byte_given_back",
        Framed,
        "site callq leaf; movb $1, %bl; movl %ebx, %eax",
        &[RegisterAcrossSite],
    )
    .gives("B"),
    case(
        "second_result",
        Framed,
        "site callq leaf; movb $1, %bl; movq %rbx, %rdx",
        &[RegisterAcrossSite],
    )
    .gives("ll"),
    case(
        "half_a_double",
        Framed,
        "site callq leaf; movd %eax, %xmm8; punpckldq %xmm9, %xmm8; movaps %xmm8, %xmm0; callq real",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "half_a_double_for_a_float",
        Framed,
        "site callq leaf; movd %eax, %xmm8; punpckldq %xmm9, %xmm8; movaps %xmm8, %xmm0; callq single",
        &[],
    )
    .gives(""),
    case(
        "half_a_double_given_back",
        Framed,
        "site callq leaf; movd %eax, %xmm8; punpckldq %xmm9, %xmm8; movaps %xmm8, %xmm0",
        &[RegisterAcrossSite],
    )
    .gives("d"),
    case(
        "arguments_without_places",
        Framed,
        "site:? callq leaf",
        &[Convention],
    )
    .gives(""),
    case("results_without_places", Framed, "nop", &[Convention]).gives("llll"),
];

const AARCH64: &[Case] = &[
    case(
        "saved_and_passed_on_the_stack",
        Framed,
        "mov x19, x0; site bl leaf; str x19, [sp]; str x0, [sp, #8]; bl stacked",
        &[SlotAcrossSite],
    )
    .gives(""),
    case(
        "stack_argument_of_before",
        Framed,
        "stp x0, x1, [sp]; site bl leaf; bl stacked",
        &[SlotAcrossSite],
    )
    .gives(""),
    case(
        "stack_arguments",
        Framed,
        "site bl leaf; stp x0, x1, [sp]; bl stacked",
        &[],
    )
    .gives(""),
    case(
        "stack_argument_in_part",
        Framed,
        "site bl leaf; str w0, [sp]; str x0, [sp, #8]; bl stacked",
        &[SlotAcrossSite],
    )
    .gives(""),
    case(
        "stack_argument_on_one_path",
        Framed,
        "site bl leaf; str x0, [sp, #8]; cbz x0, 1f; str x0, [sp]; 1: bl stacked",
        &[SlotAcrossSite],
    )
    .gives(""),
    case(
        "stack_argument_that_nobody_wrote",
        Framed,
        "bl stacked",
        &[UndefinedSlot],
    )
    .gives(""),
    case(
        "byte_on_the_stack",
        Framed,
        "site bl leaf; strb w0, [sp]; blr x0",
        &[],
    )
    .gives("")
    .plain(&["llllllllb"]),
    case(
        "stack_argument_of_a_spine_call",
        Framed,
        "str x0, [sp]; site bl leaf; site:lllllllllllllllllllllllll bl leaf",
        &[SlotAcrossSite],
    )
    .gives(""),
    case(
        "stack_argument_through_a_pointer",
        Framed,
        "str x0, [sp]; site bl leaf; blr x0",
        &[SlotAcrossSite],
    )
    .gives("")
    .plain(&["lllllllll"]),
    case(
        "pointer_that_the_ir_does_not_know",
        Framed,
        "blr x0",
        &[Convention],
    )
    .gives(""),
    // Writes of a part of a general-purpose register clear the rest, or read it.
    case(
        "byte_then_all_of_it",
        Framed,
        "site bl leaf; bfxil x19, x0, #0, #8; mov x0, x19; bl word",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "byte_for_all_of_it",
        Framed,
        "site bl leaf; and w19, w0, #0xff; mov x0, x19; bl word",
        &[],
    )
    .gives(""),
    case(
        "word_of_before_in_a_slot",
        Framed,
        "site bl leaf; str x19, [sp]; ldr x0, [sp]; bl word",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "half_a_double",
        Framed,
        "site bl leaf; mov v8.s[0], w0; fmov d0, d8; bl real",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "half_a_double_in_place",
        Framed,
        "site bl leaf; str w0, [sp]; str w19, [sp, #4]; ldr d0, [sp]; bl real",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "half_a_double_for_a_float",
        Framed,
        "site bl leaf; str w0, [sp]; str w19, [sp, #4]; ldr d0, [sp]; bl single",
        &[],
    )
    .gives(""),
    case(
        "half_a_double_given_back",
        Framed,
        "site bl leaf; str w0, [sp]; str w19, [sp, #4]; ldr d0, [sp]",
        &[RegisterAcrossSite],
    )
    .gives("d"),
    case(
        "half_a_double_of_a_spine_call",
        Framed,
        "site bl leaf; str w0, [sp]; str w19, [sp, #4]; ldr d0, [sp]; site:d bl leaf",
        &[RegisterAcrossSite],
    )
    .gives(""),
    case(
        "bit_given_back",
        Framed,
        "site bl leaf; strh w0, [sp]; strh w19, [sp, #2]; ldr w0, [sp]",
        &[RegisterAcrossSite],
    )
    .gives("Z"),
    case(
        "second_result",
        Framed,
        "site bl leaf; mov x1, x19",
        &[RegisterAcrossSite],
    )
    .gives("ll"),
    case("no_second_result", Framed, "site bl leaf; mov x1, x19", &[]).gives("l"),
    case(
        "arguments_without_places",
        Framed,
        "site:? bl leaf",
        &[Convention],
    )
    .gives(""),
    case("results_without_places", Framed, "nop", &[Convention]).gives("lllllllll"),
];

#[test]
fn x86_64_hands_over_only_what_is_new() {
    check(Isa::X86_64, "handed", X86_64);
}

#[test]
fn aarch64_hands_over_only_what_is_new() {
    check(Isa::Aarch64, "handed", AARCH64);
}
