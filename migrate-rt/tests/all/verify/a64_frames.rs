//! AArch64: addresses, frames, flow of control.

use super::fixture::check;
use dyad_abi::Isa;

/// Addresses of the native stack.
const ADDRESSES: &str = "
    stored_address                | FrameAddress         | add x1, sp, #8; str x1, [x0]
    spilled_address               | FrameAddress         | add x1, sp, #8; str x1, [sp]; mov x1, #0
    passed_address                | FrameAddress         | add x0, sp, #8; bl plain
    passed_to_a_site              | FrameAddress         | add x20, sp, #8; site bl leaf
    returned_address              | FrameAddress         | mov x0, sp
    kept_address                  | FrameAddress RegisterAcrossSite | add x19, sp, #8; site bl leaf; str x0, [x19]
    compared_address              | FrameAddress         | cmp sp, x0
    added_address                 | FrameAddress         | add x1, sp, x0
    masked_address                | FrameAddress         | add x1, sp, #8; and x1, x1, #-16
    moved_on                      | FrameAddress UndefinedSlot | mov x1, sp; ld1 { v0.2d }, [x1], x2
    frame_pointer_stored          | FrameAddress         | str x29, [x0]
    return_address_read           | FrameRecord          | ldr x0, [x29, #8]
    return_address_stored, bare 0 | FrameAddress         | str x30, [x0]; ret
    direct_use                    |                      | add x8, sp, #8; str x0, [x8], #8; str x1, [x8, #8]!; ldur x1, [x8, #-16]
        mov x8, #0
";

/// Frames.
const FRAMES: &str = "
    no_record, bare 16          | FrameRecord BadReturn | str x30, [sp, #-16]!; site bl leaf; ldr x30, [sp], #16; ret
    record_not_written, bare 16 | FrameRecord BadReturn | sub sp, sp, #16; str x30, [sp, #8]; mov x29, sp; site bl leaf
        ldr x30, [sp, #8]; add sp, sp, #16; ret
    record_elsewhere, bare 32   | FrameRecord BadReturn FrameAddress SlotAcrossSite | stp x29, x30, [sp, #-32]!; mov x29, sp
        site bl leaf; ldp x29, x30, [sp], #32; ret
    record_by_index, bare 16    |                      | stp x29, x30, [sp, #-16]!; mov x29, sp; site bl leaf; ldp x29, x30, [sp], #16
        ret
    frame_pointer_elsewhere     | FrameRecord          | mov x29, sp; site bl leaf; add x29, sp, #32
    record_overwritten          | FrameRecord BadReturn | stp x0, x1, [x29]
    wrong_size, bare 64         | FrameSize            | sub sp, sp, #48; stp x29, x30, [sp, #32]; add x29, sp, #32; site bl leaf
        ldp x29, x30, [sp, #32]; add sp, sp, #48; ret
    pushed_argument             | FrameSize            | str x0, [sp, #-16]!; site bl leaf; add sp, sp, #16
    dynamic                     | DynamicStack FrameAddress | sub sp, sp, x0; sub sp, x29, #32
    realigned                   | DynamicStack FrameAddress | sub x9, sp, #64; and sp, x9, #-64; sub sp, x29, #32; mov x9, #0
    unequal_paths, bare 16      | BadReturn            | cbz x0, 1f; sub sp, sp, #16; 1: ret
    forgotten_frame, bare 16    | BadReturn            | sub sp, sp, #16; ret
    link_lost, bare 0           | BadReturn            | mov x30, x0; ret
    other_link, bare 0          | IndirectJump         | ret x5
";

/// Flow of control, and instructions.
const FLOW: &str = "
    jump_table                    | IndirectJump Unreached | br x0; nop; mov x0, #1
    unreached                     | Unreached            | b 1f; mov x0, #1; 1:
    padding                       |                      | b 1f; nop; udf #0; 1:
    off_the_end, bare 0           | FlowLeaves           | mov x0, #1
    behind_a_call_that_stays      | Unreached            | cbz x0, 1f; ldp x29, x30, [sp, #32]; add sp, sp, #48; ret; 1: bl never
        udf #0; 2: b 2b; b 2b
    tail_call_of_spine, bare 0    | TailCall             | b reader
    tail_call_of_leaf, bare 0     | TailCall             | b leaf
    tail_call_with_frame, bare 16 | TailCall             | sub sp, sp, #16; b plain
    tail_call, bare 0             |                      | cbz x0, plain; b plain
    call_without_site             | CallWithoutSite      | bl leaf
    no_instruction                | UnknownInstruction Unreached | .inst 0xffffffff
    later_extension               | UnknownInstruction   | .inst 0x04e00000
    half_precision                | UnknownInstruction   | .inst 0x1ee12800
    signed_return_address         | UnknownInstruction   | hint #25
    exclusive                     | UnknownInstruction   | ldxr x0, [x1]
    rounding                      | ForbiddenInstruction | msr fpcr, x0
    rounding_read                 | ForbiddenInstruction | mrs x0, fpcr
    flags_read                    |                      | cmp x0, x1; mrs x11, nzcv; cmp x1, #3; msr nzcv, x11; b.eq 1f; 1:
    flags_of_before_a_site        | RegisterAcrossSite   | cmp x0, x1; site bl leaf; mrs x11, nzcv
    flags_kept_over_a_site        | RegisterAcrossSite   | cmp x0, x1; mrs x11, nzcv; site bl leaf; msr nzcv, x11
    flags_of_the_other_side       | RegisterAcrossSite   | cmp x0, x1; site bl leaf; mov x0, #1; b.eq 1f; 1:
    thread_pointer                | ForbiddenInstruction | msr tpidr_el0, x0
    thread_pointer_read           |                      | mrs x0, tpidr_el0
    kernel_entry                  | ForbiddenInstruction | svc #0
";

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
