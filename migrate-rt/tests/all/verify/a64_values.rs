//! AArch64: values in registers and slots.

use super::fixture::check;
use dyad_abi::Isa;

/// Values that live across a site.
const ACROSS: &str = "
    callee_saved                       | RegisterAcrossSite | mov x19, x0; site bl leaf; add x0, x0, x19
    caller_saved                       | RegisterAcrossSite | mov x9, x0; site bl leaf; add x0, x0, x9
    returned_copy                      | RegisterAcrossSite | mov x20, x0; site bl leaf; mov x0, x20
    handed_on_copy                     | RegisterAcrossSite | mov x20, x0; site bl leaf; mov x0, x20; bl plain
    as_address                         | RegisterAcrossSite | site bl leaf; ldr w0, [x19]
    as_index                           | RegisterAcrossSite | site bl leaf; ldr w0, [x0, x19, lsl #2]
    as_extended_index                  | RegisterAcrossSite | site bl leaf; ldr w0, [x0, w19, uxtw]
    stored                             | RegisterAcrossSite | site bl leaf; str x19, [x0]
    stored_pair                        | RegisterAcrossSite | site bl leaf; stp x0, x19, [x0]
    argument_of_spine                  | RegisterAcrossSite | site bl leaf; site bl reader
    argument_of_unknown                | RegisterAcrossSite | site bl leaf; site blr x0
    target                             | RegisterAcrossSite | site bl leaf; site blr x19
    vector                             | RegisterAcrossSite | fmov d9, d0; site bl leaf; fadd d0, d0, d9
    vector_high                        | RegisterAcrossSite | site bl leaf; add v0.2d, v0.2d, v31.2d
    vector_accumulator                 | RegisterAcrossSite | site bl leaf; fmla v16.2d, v0.2d, v1.2d
    vector_select                      | RegisterAcrossSite | site bl leaf; bsl v16.16b, v0.16b, v1.16b
    vector_element                     | RegisterAcrossSite | site bl leaf; mov v16.d[0], x0; str q16, [x0]
    vector_narrowed                    | RegisterAcrossSite | site bl leaf; xtn2 v16.4s, v0.2d
    vector_stored                      | RegisterAcrossSite | site bl leaf; st1 { v16.16b, v17.16b }, [x0]
    vector_table                       | RegisterAcrossSite | site bl leaf; tbl v0.16b, { v16.16b }, v1.16b
    float_multiply                     | RegisterAcrossSite | site bl leaf; fmadd d0, d0, d1, d16
    low_half_survives_plain_calls_only | UndefinedRegister  | fmov d8, d0; bl plain; fadd d0, d0, d8; add v0.2d, v8.2d, v1.2d
    flags                              | RegisterAcrossSite | cmp x0, x1; site bl leaf; b.eq 1f; mov x0, #1; 1:
    flags_conditional                  | RegisterAcrossSite | cmp x0, x1; site bl leaf; ccmp x0, #3, #0, ne
    flags_carry                        | RegisterAcrossSite | cmp x0, x1; site bl leaf; adc x0, x0, x1
    flags_float                        | RegisterAcrossSite | cmp x0, x1; site bl leaf; fcsel d0, d0, d1, eq
    csel                               | RegisterAcrossSite | site bl leaf; cmp x0, #0; csel x0, x0, x19, eq
    cset                               | RegisterAcrossSite | cmp x0, x1; site bl leaf; cset w0, eq
    insert                             | RegisterAcrossSite | site bl leaf; bfi x19, x0, #0, #8
    move_keep                          | RegisterAcrossSite | site bl leaf; movk x19, #1, lsl #16
    shifted                            | RegisterAcrossSite | site bl leaf; add x0, x0, x19, lsl #3
    extended                           | RegisterAcrossSite | site bl leaf; add x0, x0, w19, uxtb
    multiply_add                       | RegisterAcrossSite | site bl leaf; madd x0, x0, x1, x19
    test_bit                           | RegisterAcrossSite | site bl leaf; tbz x19, #3, 1f; nop; 1:
    compare_branch                     | RegisterAcrossSite | site bl leaf; cbz x19, 1f; nop; 1:
    atomic_add                         | RegisterAcrossSite | site bl leaf; ldadd x19, x1, [x0]
    compare_and_swap                   | RegisterAcrossSite | site bl leaf; casal x19, x1, [x0]
    swap                               | RegisterAcrossSite | site bl leaf; swpal w19, w1, [x0]
    release                            | RegisterAcrossSite | site bl leaf; stlr x19, [x0]
    post_index                         | RegisterAcrossSite | site bl leaf; ldr x0, [x19], #8
    pre_index                          | RegisterAcrossSite | site bl leaf; str x0, [x19, #8]!
    eor_same_is_a_read                 | RegisterAcrossSite | site bl leaf; eor x19, x19, x19
    zero_register_is_no_read           | RegisterAcrossSite | site bl leaf; add x0, x0, xzr; str xzr, [x0]; stp xzr, xzr, [x0]
        csel x0, x0, xzr, ne
    one_path_only                      | RegisterAcrossSite | cbz x0, 1f; site bl leaf; 1: str x1, [x0]; str x9, [x0]
    around_a_loop                      | RegisterAcrossSite | mov x19, #3; 1: add x0, x0, x19; site bl leaf; subs x0, x0, #1; b.ne 1b
";

/// Slots of the native stack.
const SLOTS: &str = "
    spilled                       | SlotAcrossSite     | str x0, [sp, #8]; site bl leaf; ldr x1, [sp, #8]
    through_the_frame_pointer     | SlotAcrossSite     | stur x0, [x29, #-8]; site bl leaf; ldur x1, [x29, #-8]
    spilled_vector                | SlotAcrossSite     | str q0, [sp]; site bl leaf; ldr q1, [sp]
    spilled_pair                  | SlotAcrossSite     | stp x0, x1, [sp]; site bl leaf; ldp x0, x1, [sp]
    second_of_a_pair              | SlotAcrossSite     | site bl leaf; str x0, [sp]; ldp x1, x2, [sp]
    pair_of_vectors               | SlotAcrossSite     | site bl leaf; str q0, [sp, #16]; ldp q1, q2, [sp]
    narrow_store                  | SlotAcrossSite     | site bl leaf; str w0, [sp]; ldr x1, [sp]
    narrow_store_signed           | SlotAcrossSite     | site bl leaf; strb w0, [sp]; ldrsh x1, [sp]
    narrow_store_first            | UndefinedSlot      | str w0, [sp]; ldr x1, [sp]
    unscaled                      | SlotAcrossSite     | site bl leaf; stur x0, [sp, #3]; ldur x1, [sp, #2]
    unscaled_inside               |                    | site bl leaf; stur x0, [sp, #3]; ldur w1, [sp, #7]
    one_path                      | SlotAcrossSite     | site bl leaf; cbz x0, 1f; str x0, [sp]; 1: ldr x1, [sp]
    stale_value                   | SlotAcrossSite     | site bl leaf; str x19, [sp]; ldrsw x1, [sp]
    stale_value_loaded            | RegisterAcrossSite | site bl leaf; str x19, [sp]; ldr x1, [sp]; add x0, x0, x1
    stale_value_on_one_path       | RegisterAcrossSite | site bl leaf; str x19, [sp]; cbz x0, 1f; str x0, [sp]; 1: ldr x1, [sp]
        add x0, x0, x1
    stale_value_on_the_other_path | RegisterAcrossSite | site bl leaf; str x0, [sp]; cbz x0, 1f; str x19, [sp]; 1: ldr x1, [sp]
        add x0, x0, x1
    atomic                        | SlotAcrossSite     | str x0, [sp]; site bl leaf; mov x1, #1; ldadd x1, x0, [sp]
    structures                    | SlotAcrossSite     | stp q0, q1, [sp]; site bl leaf; ld2 { v0.2d, v1.2d }, [sp]
    in_a_loop                     | SlotAcrossSite     | str x0, [sp]; 1: ldr x1, [sp]; site bl leaf; cbnz x0, 1b
    below_the_stack               | OutsideFrame       | stur x0, [sp, #-8]
    in_the_callers_frame          | OutsideFrame       | str x0, [sp, #48]
    indexed                       | UnknownSlot        | stp x0, x1, [sp]; and x2, x2, #1; ldr x0, [sp, x2, lsl #3]
    indexed_store                 | UnknownSlot        | and x2, x2, #1; str x0, [sp, x2, lsl #3]
    incoming                      | IncomingArgument   | ldr x1, [sp, #48]; site bl leaf; ldr x2, [sp, #56]
    saved, bare 32                | SavedRegister      | sub sp, sp, #32; stp x29, x30, [sp, #16]; str x19, [sp, #8]; add x29, sp, #16
        site bl leaf; ldr x19, [sp, #8]; ldp x29, x30, [sp, #16]; add sp, sp, #32; ret
    saved_pair, bare 48           | SavedRegister      | sub sp, sp, #48; stp x29, x30, [sp, #32]; stp x20, x19, [sp, #16]
        add x29, sp, #32; site bl leaf; ldp x20, x19, [sp, #16]; ldp x29, x30, [sp, #32]; add sp, sp, #48; ret
    saved_vector, bare 32         | SavedRegister      | sub sp, sp, #32; stp x29, x30, [sp, #16]; str d8, [sp, #8]; add x29, sp, #16
        site bl leaf; ldr d8, [sp, #8]; ldp x29, x30, [sp, #16]; add sp, sp, #32; ret
";

#[test]
fn values_across_sites_are_found() {
    check(Isa::Aarch64, "across", ACROSS);
}

#[test]
fn stale_slots_are_found() {
    check(Isa::Aarch64, "slots", SLOTS);
}
