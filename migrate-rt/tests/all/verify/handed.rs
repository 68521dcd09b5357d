//! What calls and returns hand over: every byte that has a meaning, in registers and on the native stack, is from
//! after the last site.

use super::fixture::check_conventions;
use dyad_abi::Isa;

const X86_64: &str = "
    handed_on_by_a_jump                  | RegisterAcrossSite | movq %rdi, %rbx; site callq leaf; testq %rax, %rax; je 1f
        movq %rbx, %rdi; addq $32, %rsp; popq %rbp; jmp word; 1:
    new_and_handed_on_by_a_jump          |                    | site callq leaf; testq %rax, %rax; je 1f; movq %rax, %rdi
        addq $32, %rsp; popq %rbp; jmp word; 1:
    stack_arguments_handed_on_by_a_jump  | IncomingArgument   | site callq leaf; testq %rax, %rax; je 1f; addq $32, %rsp; popq %rbp
        jmp stacked; 1:
    saved_and_passed_on_the_stack        | SlotAcrossSite     | movq %rdi, %rbx; site callq leaf; movq %rbx, (%rsp)
        movq %rax, 8(%rsp); movq %rax, 16(%rsp); movq %rax, 24(%rsp); callq stacked
    stack_argument_of_before             | SlotAcrossSite     | movq %rdi, (%rsp); movq %rdi, 8(%rsp); movq %rdi, 16(%rsp)
        movq %rdi, 24(%rsp); site callq leaf; callq stacked
    stack_arguments                      |                    | site callq leaf; movq %rax, (%rsp); movq %rax, 8(%rsp)
        movq %rax, 16(%rsp); movq %rax, 24(%rsp); callq stacked
    stack_argument_in_part               | SlotAcrossSite     | site callq leaf; movl %eax, (%rsp); movq %rax, 8(%rsp)
        movq %rax, 16(%rsp); movq %rax, 24(%rsp); callq stacked
    stack_argument_on_one_path           | SlotAcrossSite     | site callq leaf; movq %rax, 8(%rsp); movq %rax, 16(%rsp)
        movq %rax, 24(%rsp); testq %rax, %rax; je 1f; movq %rax, (%rsp); 1: callq stacked
    stack_argument_that_nobody_wrote     | UndefinedSlot      | callq stacked
    byte_on_the_stack                    |                    | site callq leaf; movb %al, (%rsp); callq stacked_byte
    stack_argument_of_a_spine_call       | SlotAcrossSite     | movq %rdi, (%rsp); site callq leaf; site:lllllllllllll callq leaf
    stack_argument_through_a_pointer, plain lllllll | SlotAcrossSite     | movq %rdi, (%rsp); site callq leaf; callq *%rax
    byte_then_all_of_it                  | RegisterAcrossSite | site callq leaf; movb $1, %bl; movq %rbx, %rdi; callq word
    byte_then_half_of_it                 | RegisterAcrossSite | site callq leaf; movb $1, %bl; movl %ebx, %edi; callq half
    byte_of_an_argument                  | RegisterAcrossSite | site callq leaf; movb $1, %dil; callq word
    byte_for_a_byte                      |                    | site callq leaf; movb $1, %bl; movl %ebx, %edi; callq byte
    byte_of_a_spine_argument             | RegisterAcrossSite | site callq leaf; movb $1, %r12b; site:l callq leaf
    byte_through_a_pointer, plain b l    | RegisterAcrossSite | site callq leaf; movb $1, %dil; callq *%rax
    pointer_that_the_ir_does_not_know    | Convention         | callq *%rax
    // An integer of 16 bytes that five registers are before is on the stack as a whole; the sixth goes to what is behind it.
    half_a_wide_integer_of_before, plain lllllL | SlotAcrossSite | movq %rdi, 8(%rsp); site callq leaf; movq %rax, (%rsp); callq *%rax
    register_behind_a_wide_integer, plain lllllLl | RegisterAcrossSite | site callq leaf; movq %rax, (%rsp); movq %rax, 8(%rsp)
        movb $1, %r9b; callq *%rax
    register_left_by_a_wide_integer, plain lllllL |  | site callq leaf; movq %rax, (%rsp); movq %rax, 8(%rsp); movb $1, %r9b; callq *%rax
    new_wide_integers, plain lllLL       |                    | site callq leaf; movq %rax, (%rsp); movq %rax, 8(%rsp)
        movq %rax, %rcx; movq %rax, %r8; callq *%rax
    half_a_wide_integer_in_a_register, plain lllLL | RegisterAcrossSite | site callq leaf; movq %rax, (%rsp); movq %rax, 8(%rsp)
        movb $1, %r8b; callq *%rax
    byte_given_back, gives b             |                    | site callq leaf; movb $1, %bl; movq %rbx, %rax
    byte_given_back_as_a_word, gives l   | RegisterAcrossSite | site callq leaf; movb $1, %bl; movq %rbx, %rax
    bit_given_back, gives Z              |                    | site callq leaf; movb $1, %bl; movl %ebx, %eax
    extended_byte_given_back, gives B    | RegisterAcrossSite | site callq leaf; movb $1, %bl; movl %ebx, %eax
    second_result, gives ll              | RegisterAcrossSite | site callq leaf; movb $1, %bl; movq %rbx, %rdx
    half_a_double                        | RegisterAcrossSite | site callq leaf; movd %eax, %xmm8; punpckldq %xmm9, %xmm8
        movaps %xmm8, %xmm0; callq real
    half_a_double_for_a_float            |                    | site callq leaf; movd %eax, %xmm8; punpckldq %xmm9, %xmm8
        movaps %xmm8, %xmm0; callq single
    half_a_double_given_back, gives d    | RegisterAcrossSite | site callq leaf; movd %eax, %xmm8; punpckldq %xmm9, %xmm8
        movaps %xmm8, %xmm0
    arguments_without_places             | Convention         | site:? callq leaf
    results_without_places, gives llll   | Convention         | nop
";

const AARCH64: &str = "
    saved_and_passed_on_the_stack        | SlotAcrossSite     | mov x19, x0; site bl leaf; str x19, [sp]; str x0, [sp, #8]; bl stacked
    stack_argument_of_before             | SlotAcrossSite     | stp x0, x1, [sp]; site bl leaf; bl stacked
    stack_arguments                      |                    | site bl leaf; stp x0, x1, [sp]; bl stacked
    stack_argument_in_part               | SlotAcrossSite     | site bl leaf; str w0, [sp]; str x0, [sp, #8]; bl stacked
    stack_argument_on_one_path           | SlotAcrossSite     | site bl leaf; str x0, [sp, #8]; cbz x0, 1f; str x0, [sp]; 1: bl stacked
    stack_argument_that_nobody_wrote     | UndefinedSlot      | bl stacked
    byte_on_the_stack, plain llllllllb   |                    | site bl leaf; strb w0, [sp]; blr x0
    stack_argument_of_a_spine_call       | SlotAcrossSite     | str x0, [sp]; site bl leaf; site:lllllllllllllllllllllllll bl leaf
    stack_argument_through_a_pointer, plain lllllllll | SlotAcrossSite     | str x0, [sp]; site bl leaf; blr x0
    pointer_that_the_ir_does_not_know    | Convention         | blr x0
    // An integer of 16 bytes is in a pair whose first register is even, or on the stack as a whole.
    register_before_a_pair, plain lL     |                    | site bl leaf; mov x1, x19; blr x0
    first_of_a_pair, plain lL            | RegisterAcrossSite | site bl leaf; mov x2, x19; blr x0
    second_of_a_pair, plain lL           | RegisterAcrossSite | site bl leaf; mov x3, x19; blr x0
    register_before_the_stack, plain lllllllL |               | site bl leaf; stp x0, x0, [sp]; mov x7, x19; blr x0
    half_a_wide_integer_of_before, plain lllllllL | SlotAcrossSite | str x0, [sp, #8]; site bl leaf; str x0, [sp]; blr x0
    // Writes of a part of a general-purpose register clear the rest, or read it.
    byte_then_all_of_it                  | RegisterAcrossSite | site bl leaf; bfxil x19, x0, #0, #8; mov x0, x19; bl word
    byte_for_all_of_it                   |                    | site bl leaf; and w19, w0, #0xff; mov x0, x19; bl word
    word_of_before_in_a_slot             | RegisterAcrossSite | site bl leaf; str x19, [sp]; ldr x0, [sp]; bl word
    half_a_double                        | RegisterAcrossSite | site bl leaf; mov v8.s[0], w0; fmov d0, d8; bl real
    half_a_double_in_place               | RegisterAcrossSite | site bl leaf; str w0, [sp]; str w19, [sp, #4]; ldr d0, [sp]; bl real
    half_a_double_for_a_float            |                    | site bl leaf; str w0, [sp]; str w19, [sp, #4]; ldr d0, [sp]; bl single
    half_a_double_given_back, gives d    | RegisterAcrossSite | site bl leaf; str w0, [sp]; str w19, [sp, #4]; ldr d0, [sp]
    half_a_double_of_a_spine_call        | RegisterAcrossSite | site bl leaf; str w0, [sp]; str w19, [sp, #4]; ldr d0, [sp]
        site:d bl leaf
    bit_given_back, gives Z              | RegisterAcrossSite | site bl leaf; strh w0, [sp]; strh w19, [sp, #2]; ldr w0, [sp]
    second_result, gives ll              | RegisterAcrossSite | site bl leaf; mov x1, x19
    no_second_result, gives l            |                    | site bl leaf; mov x1, x19
    arguments_without_places             | Convention         | site:? bl leaf
    results_without_places, gives lllllllll | Convention         | nop
";

#[test]
fn x86_64_hands_over_only_what_is_new() {
    check_conventions(Isa::X86_64, "handed", X86_64);
}

#[test]
fn aarch64_hands_over_only_what_is_new() {
    check_conventions(Isa::Aarch64, "handed", AARCH64);
}
