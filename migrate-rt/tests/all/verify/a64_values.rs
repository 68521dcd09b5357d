//! AArch64: values in registers and slots.

use super::fixture::Shape::{Bare, Framed};
use super::fixture::{Case, case, check};
use dyad_abi::Isa;
use migrate_rt::verify::Kind::*;

/// Values that live across a site.
const ACROSS: &[Case] = &[
    case(
        "callee_saved",
        Framed,
        "mov x19, x0; site bl leaf; add x0, x0, x19",
        &[RegisterAcrossSite],
    ),
    case(
        "caller_saved",
        Framed,
        "mov x9, x0; site bl leaf; add x0, x0, x9",
        &[RegisterAcrossSite],
    ),
    case(
        "returned_copy",
        Framed,
        "mov x20, x0; site bl leaf; mov x0, x20",
        &[RegisterAcrossSite],
    ),
    case(
        "handed_on_copy",
        Framed,
        "mov x20, x0; site bl leaf; mov x0, x20; bl plain",
        &[RegisterAcrossSite],
    ),
    case(
        "as_address",
        Framed,
        "site bl leaf; ldr w0, [x19]",
        &[RegisterAcrossSite],
    ),
    case(
        "as_index",
        Framed,
        "site bl leaf; ldr w0, [x0, x19, lsl #2]",
        &[RegisterAcrossSite],
    ),
    case(
        "as_extended_index",
        Framed,
        "site bl leaf; ldr w0, [x0, w19, uxtw]",
        &[RegisterAcrossSite],
    ),
    case(
        "stored",
        Framed,
        "site bl leaf; str x19, [x0]",
        &[RegisterAcrossSite],
    ),
    case(
        "stored_pair",
        Framed,
        "site bl leaf; stp x0, x19, [x0]",
        &[RegisterAcrossSite],
    ),
    case(
        "argument_of_spine",
        Framed,
        "site bl leaf; site bl reader",
        &[RegisterAcrossSite],
    ),
    case(
        "argument_of_unknown",
        Framed,
        "site bl leaf; site blr x0",
        &[RegisterAcrossSite],
    ),
    case(
        "target",
        Framed,
        "site bl leaf; site blr x19",
        &[RegisterAcrossSite],
    ),
    case(
        "vector",
        Framed,
        "fmov d9, d0; site bl leaf; fadd d0, d0, d9",
        &[RegisterAcrossSite],
    ),
    case(
        "vector_high",
        Framed,
        "site bl leaf; add v0.2d, v0.2d, v31.2d",
        &[RegisterAcrossSite],
    ),
    case(
        "vector_accumulator",
        Framed,
        "site bl leaf; fmla v16.2d, v0.2d, v1.2d",
        &[RegisterAcrossSite],
    ),
    case(
        "vector_select",
        Framed,
        "site bl leaf; bsl v16.16b, v0.16b, v1.16b",
        &[RegisterAcrossSite],
    ),
    case(
        "vector_element",
        Framed,
        "site bl leaf; mov v16.d[0], x0; str q16, [x0]",
        &[RegisterAcrossSite],
    ),
    case(
        "vector_narrowed",
        Framed,
        "site bl leaf; xtn2 v16.4s, v0.2d",
        &[RegisterAcrossSite],
    ),
    case(
        "vector_stored",
        Framed,
        "site bl leaf; st1 { v16.16b, v17.16b }, [x0]",
        &[RegisterAcrossSite],
    ),
    case(
        "vector_table",
        Framed,
        "site bl leaf; tbl v0.16b, { v16.16b }, v1.16b",
        &[RegisterAcrossSite],
    ),
    case(
        "float_multiply",
        Framed,
        "site bl leaf; fmadd d0, d0, d1, d16",
        &[RegisterAcrossSite],
    ),
    case(
        "low_half_survives_plain_calls_only",
        Framed,
        "fmov d8, d0; bl plain; fadd d0, d0, d8; add v0.2d, v8.2d, v1.2d",
        &[UndefinedRegister],
    ),
    case(
        "flags",
        Framed,
        "cmp x0, x1; site bl leaf; b.eq 1f; mov x0, #1; 1:",
        &[RegisterAcrossSite],
    ),
    case(
        "flags_conditional",
        Framed,
        "cmp x0, x1; site bl leaf; ccmp x0, #3, #0, ne",
        &[RegisterAcrossSite],
    ),
    case(
        "flags_carry",
        Framed,
        "cmp x0, x1; site bl leaf; adc x0, x0, x1",
        &[RegisterAcrossSite],
    ),
    case(
        "flags_float",
        Framed,
        "cmp x0, x1; site bl leaf; fcsel d0, d0, d1, eq",
        &[RegisterAcrossSite],
    ),
    case(
        "csel",
        Framed,
        "site bl leaf; cmp x0, #0; csel x0, x0, x19, eq",
        &[RegisterAcrossSite],
    ),
    case(
        "cset",
        Framed,
        "cmp x0, x1; site bl leaf; cset w0, eq",
        &[RegisterAcrossSite],
    ),
    case(
        "insert",
        Framed,
        "site bl leaf; bfi x19, x0, #0, #8",
        &[RegisterAcrossSite],
    ),
    case(
        "move_keep",
        Framed,
        "site bl leaf; movk x19, #1, lsl #16",
        &[RegisterAcrossSite],
    ),
    case(
        "shifted",
        Framed,
        "site bl leaf; add x0, x0, x19, lsl #3",
        &[RegisterAcrossSite],
    ),
    case(
        "extended",
        Framed,
        "site bl leaf; add x0, x0, w19, uxtb",
        &[RegisterAcrossSite],
    ),
    case(
        "multiply_add",
        Framed,
        "site bl leaf; madd x0, x0, x1, x19",
        &[RegisterAcrossSite],
    ),
    case(
        "test_bit",
        Framed,
        "site bl leaf; tbz x19, #3, 1f; nop; 1:",
        &[RegisterAcrossSite],
    ),
    case(
        "compare_branch",
        Framed,
        "site bl leaf; cbz x19, 1f; nop; 1:",
        &[RegisterAcrossSite],
    ),
    case(
        "atomic_add",
        Framed,
        "site bl leaf; ldadd x19, x1, [x0]",
        &[RegisterAcrossSite],
    ),
    case(
        "compare_and_swap",
        Framed,
        "site bl leaf; casal x19, x1, [x0]",
        &[RegisterAcrossSite],
    ),
    case(
        "swap",
        Framed,
        "site bl leaf; swpal w19, w1, [x0]",
        &[RegisterAcrossSite],
    ),
    case(
        "release",
        Framed,
        "site bl leaf; stlr x19, [x0]",
        &[RegisterAcrossSite],
    ),
    case(
        "post_index",
        Framed,
        "site bl leaf; ldr x0, [x19], #8",
        &[RegisterAcrossSite],
    ),
    case(
        "pre_index",
        Framed,
        "site bl leaf; str x0, [x19, #8]!",
        &[RegisterAcrossSite],
    ),
    case(
        "eor_same_is_a_read",
        Framed,
        "site bl leaf; eor x19, x19, x19",
        &[RegisterAcrossSite],
    ),
    case(
        "zero_register_is_no_read",
        Framed,
        "site bl leaf; add x0, x0, xzr; str xzr, [x0]; stp xzr, xzr, [x0]; csel x0, x0, xzr, ne",
        &[RegisterAcrossSite],
    ),
    case(
        "one_path_only",
        Framed,
        "cbz x0, 1f; site bl leaf; 1: str x1, [x0]; str x9, [x0]",
        &[RegisterAcrossSite],
    ),
    case(
        "around_a_loop",
        Framed,
        "mov x19, #3; 1: add x0, x0, x19; site bl leaf; subs x0, x0, #1; b.ne 1b",
        &[RegisterAcrossSite],
    ),
];

/// Slots of the native stack.
const SLOTS: &[Case] = &[
    case(
        "spilled",
        Framed,
        "str x0, [sp, #8]; site bl leaf; ldr x1, [sp, #8]",
        &[SlotAcrossSite],
    ),
    case(
        "through_the_frame_pointer",
        Framed,
        "stur x0, [x29, #-8]; site bl leaf; ldur x1, [x29, #-8]",
        &[SlotAcrossSite],
    ),
    case(
        "spilled_vector",
        Framed,
        "str q0, [sp]; site bl leaf; ldr q1, [sp]",
        &[SlotAcrossSite],
    ),
    case(
        "spilled_pair",
        Framed,
        "stp x0, x1, [sp]; site bl leaf; ldp x0, x1, [sp]",
        &[SlotAcrossSite],
    ),
    case(
        "second_of_a_pair",
        Framed,
        "site bl leaf; str x0, [sp]; ldp x1, x2, [sp]",
        &[SlotAcrossSite],
    ),
    case(
        "pair_of_vectors",
        Framed,
        "site bl leaf; str q0, [sp, #16]; ldp q1, q2, [sp]",
        &[SlotAcrossSite],
    ),
    case(
        "narrow_store",
        Framed,
        "site bl leaf; str w0, [sp]; ldr x1, [sp]",
        &[SlotAcrossSite],
    ),
    case(
        "narrow_store_signed",
        Framed,
        "site bl leaf; strb w0, [sp]; ldrsh x1, [sp]",
        &[SlotAcrossSite],
    ),
    case(
        "narrow_store_first",
        Framed,
        "str w0, [sp]; ldr x1, [sp]",
        &[UndefinedSlot],
    ),
    case(
        "unscaled",
        Framed,
        "site bl leaf; stur x0, [sp, #3]; ldur x1, [sp, #2]",
        &[SlotAcrossSite],
    ),
    case(
        "unscaled_inside",
        Framed,
        "site bl leaf; stur x0, [sp, #3]; ldur w1, [sp, #7]",
        &[],
    ),
    case(
        "one_path",
        Framed,
        "site bl leaf; cbz x0, 1f; str x0, [sp]; 1: ldr x1, [sp]",
        &[SlotAcrossSite],
    ),
    case(
        "stale_value",
        Framed,
        "site bl leaf; str x19, [sp]; ldrsw x1, [sp]",
        &[SlotAcrossSite],
    ),
    case(
        "stale_value_loaded",
        Framed,
        "site bl leaf; str x19, [sp]; ldr x1, [sp]; add x0, x0, x1",
        &[RegisterAcrossSite],
    ),
    case(
        "stale_value_on_one_path",
        Framed,
        "site bl leaf; str x19, [sp]; cbz x0, 1f; str x0, [sp]; 1: ldr x1, [sp]; add x0, x0, x1",
        &[RegisterAcrossSite],
    ),
    case(
        "stale_value_on_the_other_path",
        Framed,
        "site bl leaf; str x0, [sp]; cbz x0, 1f; str x19, [sp]; 1: ldr x1, [sp]; add x0, x0, x1",
        &[RegisterAcrossSite],
    ),
    case(
        "atomic",
        Framed,
        "str x0, [sp]; site bl leaf; mov x1, #1; ldadd x1, x0, [sp]",
        &[SlotAcrossSite],
    ),
    case(
        "structures",
        Framed,
        "stp q0, q1, [sp]; site bl leaf; ld2 { v0.2d, v1.2d }, [sp]",
        &[SlotAcrossSite],
    ),
    case(
        "in_a_loop",
        Framed,
        "str x0, [sp]; 1: ldr x1, [sp]; site bl leaf; cbnz x0, 1b",
        &[SlotAcrossSite],
    ),
    case(
        "below_the_stack",
        Framed,
        "stur x0, [sp, #-8]",
        &[OutsideFrame],
    ),
    case(
        "in_the_callers_frame",
        Framed,
        "str x0, [sp, #48]",
        &[OutsideFrame],
    ),
    case(
        "indexed",
        Framed,
        "stp x0, x1, [sp]; and x2, x2, #1; ldr x0, [sp, x2, lsl #3]",
        &[UnknownSlot],
    ),
    case(
        "indexed_store",
        Framed,
        "and x2, x2, #1; str x0, [sp, x2, lsl #3]",
        &[UnknownSlot],
    ),
    case(
        "incoming",
        Framed,
        "ldr x1, [sp, #48]; site bl leaf; ldr x2, [sp, #56]",
        &[IncomingArgument],
    ),
    case(
        "saved",
        Bare(32),
        "sub sp, sp, #32; stp x29, x30, [sp, #16]; str x19, [sp, #8]; add x29, sp, #16; site bl leaf; ldr x19, [sp, #8]; ldp x29, x30, [sp, #16]; add sp, sp, #32; ret",
        &[SavedRegister],
    ),
    case(
        "saved_pair",
        Bare(48),
        "sub sp, sp, #48; stp x29, x30, [sp, #32]; stp x20, x19, [sp, #16]; add x29, sp, #32; site bl leaf; ldp x20, x19, [sp, #16]; ldp x29, x30, [sp, #32]; add sp, sp, #48; ret",
        &[SavedRegister],
    ),
    case(
        "saved_vector",
        Bare(32),
        "sub sp, sp, #32; stp x29, x30, [sp, #16]; str d8, [sp, #8]; add x29, sp, #16; site bl leaf; ldr d8, [sp, #8]; ldp x29, x30, [sp, #16]; add sp, sp, #32; ret",
        &[SavedRegister],
    ),
];

#[test]
fn values_across_sites_are_found() {
    check(Isa::Aarch64, "across", ACROSS);
}

#[test]
fn stale_slots_are_found() {
    check(Isa::Aarch64, "slots", SLOTS);
}
