//! AArch64: addresses, frames, flow of control.

use super::fixture::Shape::{Bare, Framed};
use super::fixture::{Case, case, check};
use dyad_abi::Isa;
use migrate_rt::verify::Kind::*;

/// Addresses of the native stack.
const ADDRESSES: &[Case] = &[
    case(
        "stored_address",
        Framed,
        "add x1, sp, #8; str x1, [x0]",
        &[FrameAddress],
    ),
    case(
        "spilled_address",
        Framed,
        "add x1, sp, #8; str x1, [sp]; mov x1, #0",
        &[FrameAddress],
    ),
    case(
        "passed_address",
        Framed,
        "add x0, sp, #8; bl plain",
        &[FrameAddress],
    ),
    case(
        "passed_to_a_site",
        Framed,
        "add x20, sp, #8; site bl leaf",
        &[FrameAddress],
    ),
    case("returned_address", Framed, "mov x0, sp", &[FrameAddress]),
    case(
        "kept_address",
        Framed,
        "add x19, sp, #8; site bl leaf; str x0, [x19]",
        &[FrameAddress, RegisterAcrossSite],
    ),
    case("compared_address", Framed, "cmp sp, x0", &[FrameAddress]),
    case("added_address", Framed, "add x1, sp, x0", &[FrameAddress]),
    case(
        "masked_address",
        Framed,
        "add x1, sp, #8; and x1, x1, #-16",
        &[FrameAddress],
    ),
    case(
        "moved_on",
        Framed,
        "mov x1, sp; ld1 { v0.2d }, [x1], x2",
        &[FrameAddress, UndefinedSlot],
    ),
    case(
        "frame_pointer_stored",
        Framed,
        "str x29, [x0]",
        &[FrameAddress],
    ),
    case(
        "return_address_read",
        Framed,
        "ldr x0, [x29, #8]",
        &[FrameRecord],
    ),
    case(
        "return_address_stored",
        Bare(0),
        "str x30, [x0]; ret",
        &[FrameAddress],
    ),
    case(
        "direct_use",
        Framed,
        "add x8, sp, #8; str x0, [x8], #8; str x1, [x8, #8]!; ldur x1, [x8, #-16]; mov x8, #0",
        &[],
    ),
];

/// Frames.
const FRAMES: &[Case] = &[
    case(
        "no_record",
        Bare(16),
        "str x30, [sp, #-16]!; site bl leaf; ldr x30, [sp], #16; ret",
        &[FrameRecord, BadReturn],
    ),
    case(
        "record_not_written",
        Bare(16),
        "sub sp, sp, #16; str x30, [sp, #8]; mov x29, sp; site bl leaf; ldr x30, [sp, #8]; add sp, sp, #16; ret",
        &[FrameRecord, BadReturn],
    ),
    case(
        "record_elsewhere",
        Bare(32),
        "stp x29, x30, [sp, #-32]!; mov x29, sp; site bl leaf; ldp x29, x30, [sp], #32; ret",
        &[FrameRecord, BadReturn, FrameAddress, SlotAcrossSite],
    ),
    case(
        "record_by_index",
        Bare(16),
        "stp x29, x30, [sp, #-16]!; mov x29, sp; site bl leaf; ldp x29, x30, [sp], #16; ret",
        &[],
    ),
    case(
        "frame_pointer_elsewhere",
        Framed,
        "mov x29, sp; site bl leaf; add x29, sp, #32",
        &[FrameRecord],
    ),
    case(
        "record_overwritten",
        Framed,
        "stp x0, x1, [x29]",
        &[FrameRecord, BadReturn],
    ),
    case(
        "wrong_size",
        Bare(64),
        "sub sp, sp, #48; stp x29, x30, [sp, #32]; add x29, sp, #32; site bl leaf; ldp x29, x30, [sp, #32]; add sp, sp, #48; ret",
        &[FrameSize],
    ),
    case(
        "pushed_argument",
        Framed,
        "str x0, [sp, #-16]!; site bl leaf; add sp, sp, #16",
        &[FrameSize],
    ),
    case(
        "dynamic",
        Framed,
        "sub sp, sp, x0; sub sp, x29, #32",
        &[DynamicStack, FrameAddress],
    ),
    case(
        "realigned",
        Framed,
        "sub x9, sp, #64; and sp, x9, #-64; sub sp, x29, #32; mov x9, #0",
        &[DynamicStack, FrameAddress],
    ),
    case(
        "unequal_paths",
        Bare(16),
        "cbz x0, 1f; sub sp, sp, #16; 1: ret",
        &[BadReturn],
    ),
    case(
        "forgotten_frame",
        Bare(16),
        "sub sp, sp, #16; ret",
        &[BadReturn],
    ),
    case("link_lost", Bare(0), "mov x30, x0; ret", &[BadReturn]),
    case("other_link", Bare(0), "ret x5", &[IndirectJump]),
];

/// Flow of control, and instructions.
const FLOW: &[Case] = &[
    case(
        "jump_table",
        Framed,
        "br x0; nop; mov x0, #1",
        &[IndirectJump, Unreached],
    ),
    case("unreached", Framed, "b 1f; mov x0, #1; 1:", &[Unreached]),
    case("padding", Framed, "b 1f; nop; udf #0; 1:", &[]),
    case("off_the_end", Bare(0), "mov x0, #1", &[FlowLeaves]),
    case(
        "behind_a_call_that_stays",
        Framed,
        "cbz x0, 1f; ldp x29, x30, [sp, #32]; add sp, sp, #48; ret; 1: bl never; udf #0; 2: b 2b; b 2b",
        &[Unreached],
    ),
    case("tail_call_of_spine", Bare(0), "b reader", &[TailCall]),
    case("tail_call_of_leaf", Bare(0), "b leaf", &[TailCall]),
    case(
        "tail_call_with_frame",
        Bare(16),
        "sub sp, sp, #16; b plain",
        &[TailCall],
    ),
    case("tail_call", Bare(0), "cbz x0, plain; b plain", &[]),
    case("call_without_site", Framed, "bl leaf", &[CallWithoutSite]),
    case(
        "no_instruction",
        Framed,
        ".inst 0xffffffff",
        &[UnknownInstruction, Unreached],
    ),
    case(
        "later_extension",
        Framed,
        ".inst 0x04e00000",
        &[UnknownInstruction],
    ),
    case(
        "half_precision",
        Framed,
        ".inst 0x1ee12800",
        &[UnknownInstruction],
    ),
    case(
        "signed_return_address",
        Framed,
        "hint #25",
        &[UnknownInstruction],
    ),
    case("exclusive", Framed, "ldxr x0, [x1]", &[UnknownInstruction]),
    case("rounding", Framed, "msr fpcr, x0", &[ForbiddenInstruction]),
    case(
        "rounding_read",
        Framed,
        "mrs x0, fpcr",
        &[ForbiddenInstruction],
    ),
    case(
        "flags_read",
        Framed,
        "mrs x0, nzcv",
        &[ForbiddenInstruction],
    ),
    case(
        "thread_pointer",
        Framed,
        "msr tpidr_el0, x0",
        &[ForbiddenInstruction],
    ),
    case("thread_pointer_read", Framed, "mrs x0, tpidr_el0", &[]),
    case("kernel_entry", Framed, "svc #0", &[ForbiddenInstruction]),
];

#[test]
fn escaping_addresses_are_found() {
    check(Isa::Aarch64, "addresses", ADDRESSES);
}

#[test]
fn unusual_frames_are_found() {
    check(Isa::Aarch64, "frames", FRAMES);
}

#[test]
fn unclear_flow_and_instructions_are_found() {
    check(Isa::Aarch64, "flow", FLOW);
}
