//! The routines of programs whose threads migrate.
//!
//! | routine | what it does |
//! |---|---|
//! | `dyad_spine_enter` | `fn(argument, stack top) -> !`: calls the root on an empty stack; what the root returns goes to `dyad_spine_done` |
//! | `dyad_migrate_point` | `preserve_none fn()`: hands frame pointer and return address to `dyad_spine_leave`, which may lay the frames out for the other ISA and go on there, behind the call of this routine |
//! | `dyad_point_address` | `fn() -> u64`: address of `dyad_migrate_point`, which the pass must not see taken |
//!
//! The frame record of the root has a frame pointer of 0, since `dyad_spine_enter` has none, and the
//! return address behind the call in it, which ends the walk of the transform on either ISA.

use super::Stub;
use crate::spine::sites::{TABLE, table_size};

pub(super) const STUBS: [Stub; 3] = [
    Stub {
        name: crate::spine::sites::ENTER,
        x86_64: "movq %rsi, %rsp; xorl %ebp, %ebp; movq %rdi, %r12; callq dyad_spine_root; \
                 movq %rax, %rdi; callq dyad_spine_done; ud2",
        aarch64: "mov sp, x1; mov x29, #0; mov x30, #0; mov x20, x0; bl dyad_spine_root; \
                  bl dyad_spine_done; brk #1",
    },
    Stub {
        name: crate::spine::LEAF,
        x86_64: "movq %rbp, %rdi; movq (%rsp), %rsi; subq $8, %rsp; callq dyad_spine_leave; \
                 addq $8, %rsp; retq",
        aarch64: "mov x0, x29; mov x1, x30; stp x29, x30, [sp, #-16]!; bl dyad_spine_leave; \
                  ldp x29, x30, [sp], #16; ret",
    },
    Stub {
        name: "dyad_point_address",
        x86_64: "leaq dyad_migrate_point(%rip), %rax; retq",
        aarch64: "adrp x0, dyad_migrate_point; add x0, x0, :lo12:dyad_migrate_point; ret",
    },
];

/// The table of sites, to be filled in when addresses are known.
pub(super) fn table(comment: char, sites: u64) -> String {
    let size = table_size(sites);
    format!(
        "module asm \".section .rodata.{TABLE},\\22a\\22,{comment}progbits; .globl {TABLE}; \
         .type {TABLE},{comment}object; .p2align 4; {TABLE}: .zero {size}; .size {TABLE}, .-{TABLE}\"\n"
    )
}
