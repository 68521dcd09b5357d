//! The back ends: the IR of one ISA to an object file, and the few routines that have to be
//! written per ISA.
//!
//! Every function and every datum gets a section of its own, so that the aligner can place it.
//! The options beyond that keep the two back ends from taking decisions of their own about data
//! (global merging, promoted constants) or from carrying machine-level values across calls, which
//! migration inside of calls relies on.

mod spine;

use crate::DOORS;
use crate::files::{self, FileError};
use crate::ir::{IsaIr, NeutralIr};
use crate::process::{ToolError, assemble, run_quiet};
use crate::toolchain::Toolchain;
use dyad_abi::Isa;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// Options of both back ends.
const FLAGS: [&str; 11] = [
    "-O3",
    "-filetype=obj",
    "--relocation-model=static",
    // Kernels follow frame records to say where a faulting program came from.
    "--frame-pointer=all",
    "--function-sections",
    "--data-sections",
    "-disable-machine-licm",
    "-disable-machine-cse",
    "-disable-constant-hoisting",
    "-disable-tail-duplicate",
    "-disable-early-taildup",
];

/// Options of the back end of an ISA.
pub fn flags(isa: Isa) -> impl Iterator<Item = &'static str> {
    let own: &[&str] = match isa {
        Isa::X86_64 => &[
            "-mcpu=x86-64",
            // Without LZCNT it is BSR, whose result is what the destination held before if the source is zero. The
            // back end leaves the destination undefined where it knows that the source is not, which nobody can
            // see in the machine code.
            "-mattr=+lzcnt",
            "--code-model=small",
            "-no-x86-call-frame-opt",
            // Programs have line tables only. The analysis of where variables are looks at every instruction without
            // this, though there is none.
            "-experimental-debug-variable-locations=false",
        ],
        Isa::Aarch64 => &[
            // One class of atomics on both ISAs, as in the kernels: single instructions, no
            // load-exclusive loops.
            "-mattr=+v8a,+lse,+neon,+fp-armv8,+strict-align",
            // A fused multiply-add rounds once, the two instructions of baseline x86-64 twice.
            "-fp-contract=off",
            "-aarch64-enable-global-merge=false",
            "-aarch64-enable-promote-const=false",
            // Functions made of what others have in common would exist on this ISA only.
            "-enable-machine-outliner=never",
        ],
    };
    FLAGS
        .into_iter()
        .chain(["-tail-dup-placement=false"])
        .chain(own.iter().copied())
}

/// Why there is no object file.
#[derive(Debug)]
pub enum CodegenError {
    /// The back end failed.
    Llc {
        /// For which ISA.
        isa: Isa,
        /// How.
        source: ToolError,
    },
    /// A file could not be read or written.
    File(FileError),
}

impl fmt::Display for CodegenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodegenError::Llc { isa, source } => write!(
                f,
                "the {isa} back end cannot compile the program: {source}\n\
                 the IR uses something this ISA does not have; look for core::arch or vector code in the function named above"
            ),
            CodegenError::File(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for CodegenError {}

/// Compiles `ir` to the object file `dir/name.o`; `dir/name.ll` keeps the input. Gives the object.
///
/// # Errors
///
/// See [`CodegenError`].
pub fn compile(
    tools: &Toolchain,
    ir: &IsaIr,
    dir: &Path,
    name: &str,
) -> Result<Vec<u8>, CodegenError> {
    llc(tools, ir.isa(), ir.text(), dir, name)
}

/// How deep an invocation of a service may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// As deep as kernels have it.
    Open,
    /// As the entry of [`DOORS`] with this number says. A deeper one gets `TooDeep` in result word 0
    /// before a stack has been touched.
    Limited(usize),
}

impl Door {
    /// That of the program, if it is a service.
    pub(crate) fn of(neutral: &NeutralIr) -> Option<Door> {
        let limited = DOORS.iter().position(|(name, _)| neutral.defines(name));
        match limited {
            Some(n) => Some(Door::Limited(n)),
            None => neutral.defines(crate::SERVICE).then_some(Door::Open),
        }
    }

    const fn stub(self) -> &'static Stub {
        match self {
            Door::Open => &ENTERED,
            Door::Limited(n) => &LIMITED[n],
        }
    }
}

/// Which routines a program needs besides those that all have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// It can be invoked.
    pub service: Option<Door>,
    /// It has functions that run on one ISA only.
    pub crossing: bool,
    /// It calls the routine of an instruction that interpreters do not know.
    pub strange: bool,
    /// Its threads migrate: the number of sites for which its table is to have room.
    pub migrates: Option<u64>,
}

/// Compiles the routines of `isa` to the object file `dir/name.o`.
///
/// # Errors
///
/// See [`CodegenError`].
pub fn compile_stubs(
    tools: &Toolchain,
    isa: Isa,
    needs: Needs,
    dir: &Path,
    name: &str,
) -> Result<Vec<u8>, CodegenError> {
    llc(tools, isa, &stubs(isa, needs), dir, name)
}

fn llc(
    tools: &Toolchain,
    isa: Isa,
    text: &str,
    dir: &Path,
    name: &str,
) -> Result<Vec<u8>, CodegenError> {
    let [input, bitcode, object] = ["ll", "bc", "o"].map(|e| dir.join(format!("{name}.{e}")));
    files::write(&input, text.as_bytes()).map_err(CodegenError::File)?;
    let failed = |source| CodegenError::Llc { isa, source };
    assemble(tools, &input, &bitcode).map_err(failed)?;
    let mut command = Command::new(&tools.llc);
    // The bitcode has been verified just now.
    command.arg("-disable-verify").args(flags(isa));
    run_quiet(command.arg("-o").args([&object, &bitcode])).map_err(failed)?;
    files::read(&object).map_err(CodegenError::File)
}

/// A routine that is written per ISA.
pub(crate) struct Stub {
    pub(crate) name: &'static str,
    x86_64: &'static str,
    aarch64: &'static str,
}

/// The per-ISA routines. They follow the C convention, but for those that invoke services, whose
/// callers have saved what they need ([`ir`](crate::ir)), and for [`ENTERED`].
///
/// Kernels keep callee-saved registers across system calls, and across nothing else: an invocation
/// brings back the stack pointer, the status and the results. Frame pointer and return address are
/// nobody's but the routine's to save.
///
/// The toolchain has no assembler, but module assembly in an otherwise empty IR module is one.
const STUBS: [Stub; 13] = [
    // fn(word, a0, a1, a2, a3, a4) -> (status, value). The kernel takes argument 2 in r10, because
    // `syscall` overwrites rcx.
    Stub {
        name: "dyad_syscall",
        x86_64: "movq %rcx, %r10; syscall; retq",
        aarch64: "svc #0; ret",
    },
    // fn(word, a0, a1, a2, a3) -> (status, first result)
    Stub {
        name: "dyad_invoke1",
        x86_64: "pushq %rbp; movq %rcx, %r10; syscall; popq %rbp; retq",
        aarch64: "stp x29, x30, [sp, #-16]!; svc #0; ldp x29, x30, [sp], #16; ret",
    },
    // fn(word, a0, a1, a2, a3) -> (status, value), of a service whose reply starts with these. A
    // call that the kernel refuses has zeros for results, so the statuses are merged without a
    // branch.
    Stub {
        name: "dyad_request",
        x86_64: "pushq %rbp; movq %rcx, %r10; syscall; orq %rdx, %rax; movq %rsi, %rdx; \
                 popq %rbp; retq",
        aarch64: "stp x29, x30, [sp, #-16]!; svc #0; orr x0, x0, x1; mov x1, x2; \
                  ldp x29, x30, [sp], #16; ret",
    },
    // fn(word, a0, a1, a2, a3, results: *mut [u64; 4]) -> status
    Stub {
        name: "dyad_invoke",
        x86_64: "pushq %rbp; pushq %r9; movq %rcx, %r10; syscall; popq %r9; \
                 movq %rdx, (%r9); movq %rsi, 8(%r9); movq %rdi, 16(%r9); movq %r8, 24(%r9); \
                 popq %rbp; retq",
        aarch64: "stp x29, x30, [sp, #-32]!; str x5, [sp, #16]; svc #0; ldr x5, [sp, #16]; \
                  stp x1, x2, [x5]; stp x3, x4, [x5, #16]; ldp x29, x30, [sp], #32; ret",
    },
    // fn(word, r0, r1, r2, r3): the call that ends an invocation. If the kernel refuses it, there is
    // nothing to go back to.
    Stub {
        name: "dyad_return",
        x86_64: "movq %rcx, %r10; syscall; ud2",
        aarch64: "svc #0; brk #1",
    },
    Stub {
        name: "dyad_isa",
        x86_64: "xorl %eax, %eax; retq",
        aarch64: "mov x0, #1; ret",
    },
    Stub {
        name: "dyad_relax",
        x86_64: "pause; retq",
        aarch64: "isb; ret",
    },
    // fn(address): writes a line of the caches back, which may keep it. All x86-64 machines of the system have CLWB: they are QEMU's
    // largest CPU.
    Stub {
        name: "dyad_write_back",
        x86_64: "clwb (%rdi); retq",
        aarch64: "dc cvac, x0; ret",
    },
    // fn(address): writes a line of the caches back and drops it.
    Stub {
        name: "dyad_flush",
        x86_64: "clflush (%rdi); retq",
        aarch64: "dc civac, x0; ret",
    },
    // Completes write-backs and drops, loads and stores.
    Stub {
        name: "dyad_barrier",
        x86_64: "mfence; retq",
        aarch64: "dsb sy; ret",
    },
    Stub {
        name: "dyad_tcb",
        x86_64: "movq %fs:0, %rax; retq",
        aarch64: "mrs x0, tpidr_el0; ret",
    },
    // The frame pointer of the caller, which all functions have.
    Stub {
        name: "dyad_frame",
        x86_64: "movq %rbp, %rax; retq",
        aarch64: "mov x0, x29; ret",
    },
    // Compiler builtins name it; nothing unwinds.
    Stub {
        name: "rust_eh_personality",
        x86_64: "ud2",
        aarch64: "brk #1",
    },
];

/// An instruction of each ISA that does nothing, and that interpreters of programs do not know: of the x87,
/// and a checksum. For tests.
pub(crate) const STRANGE: Stub = Stub {
    name: "dyad_strange",
    x86_64: "fnop; retq",
    aarch64: ".inst 0x9adf4fff; ret",
};

/// Where kernels enter an invocation of a program that defines [`SERVICE`](crate::SERVICE): words in
/// argument registers 0 to 3, badge in 4, token in 5, no stack, zeros elsewhere. It finds the stack
/// that belongs to the token and goes on as `fn(word0, word1, word2, word3, badge, token)`, which
/// ends with `dyad_return`.
///
/// The stack's top is `(token + STACKS / STRIDE + 1) * STRIDE`
/// ([`invoke_stack`](dyad_abi::service::invoke_stack)).
const ENTERED: Stub = Stub {
    name: crate::INVOKED,
    // The call leaves the stack as the C convention wants it at the start of a function.
    x86_64: "leaq 0x18000001(%r9), %rsp; shlq $18, %rsp; callq dyad_invoked; ud2",
    aarch64: "movz x9, #0x6000, lsl #32; add x9, x9, x5, lsl #18; add sp, x9, #64, lsl #12; \
              b dyad_invoked",
};

/// [`ENTERED`] of a service whose invocations may be so deep. The entry looks at the low byte of the token first. There is
/// no stack yet, and the way back needs none: the entry returns `TooDeep`. If the kernel refuses that, there is
/// nothing to go back to.
macro_rules! limited {
    ($depth:literal) => {
        Stub {
            name: crate::INVOKED,
            x86_64: concat!(
                "cmpb $",
                $depth,
                ", %r9b; ja 1f; leaq 0x18000001(%r9), %rsp; shlq $18, %rsp; callq dyad_invoked_to_",
                $depth,
                "; ud2; 1: xorl %edi, %edi; movl $22, %esi; xorl %edx, %edx; xorl %r10d, %r10d; \
                 xorl %r8d, %r8d; syscall; ud2"
            ),
            aarch64: concat!(
                "and x9, x5, #0xff; cmp x9, #",
                $depth,
                "; b.hi 1f; movz x9, #0x6000, lsl #32; add x9, x9, x5, lsl #18; \
                 add sp, x9, #64, lsl #12; b dyad_invoked_to_",
                $depth,
                "; 1: mov x0, xzr; mov x1, #22; mov x2, xzr; mov x3, xzr; mov x4, xzr; svc #0; brk #1"
            ),
        }
    };
}

/// By the number of the entry in [`DOORS`].
const LIMITED: [Stub; 2] = [limited!(4), limited!(6)];

const _: () = {
    use dyad_abi::Error;
    assert!(DOORS[0].1 == 4 && DOORS[1].1 == 6);
    assert!(Error::TooDeep as u64 == 22 && dyad_abi::cap::RETURN == 0);
};

const _: () = {
    use dyad_abi::service::{INVOKE_STACK_STRIDE, INVOKE_STACKS, invoke_stack};
    assert!(INVOKE_STACKS == 0x6000 << 32 && INVOKE_STACK_STRIDE == 1 << 18);
    assert!(INVOKE_STACK_STRIDE == 64 << 12 && INVOKE_STACKS >> 18 == 0x1800_0000);
    assert!(invoke_stack(0x305).1 == (0x305 + 0x1800_0001) << 18);
};

const _: () = assert!(Isa::X86_64 as u8 == 0 && Isa::Aarch64 as u8 == 1);

/// The name under which an ISA's gates are in its program.
pub(crate) const GATES: &str = "dyad_gates";

/// Routines of programs with functions that run on one ISA only.
///
/// The [gates](dyad_abi::user::gate) are at the start of their ISA's window. What has crossed is called
/// like any function, on a stack that is made fit for that: the one it was left with may be where a
/// function begins, or ends. A call that is lost returns to `dyad_try_call` if that has made it, which has
/// said so with the stack pointer; else the program ends (`dyad_crossing_lost`).
const CROSSING: [Stub; 2] = [
    Stub {
        name: GATES,
        // At 0x40: the result. At 0x80: the error.
        x86_64: "pushq %rbp; movq %rsp, %rbp; andq $-16, %rsp; callq *%r11; movq %rbp, %rsp; \
                 popq %rbp; movl $0x47c001f0, %ecx; jmpq *%rcx; .p2align 6; \
                 movq %rdi, %rax; retq; .p2align 6; \
                 cmpq %rsp, %fs:48; jne 1f; movq %rdi, 8(%rbx); xorl %eax, %eax; retq; \
                 1: andq $-16, %rsp; callq dyad_crossing_lost; ud2",
        aarch64: "stp x29, x30, [sp, #-16]!; mov x29, sp; blr x16; ldp x29, x30, [sp], #16; \
                  movz x17, #0x4740, lsl #16; movk x17, #0x01f0; br x17; .p2align 6; \
                  ret; .p2align 6; \
                  mrs x9, tpidr_el0; ldr x9, [x9, #56]; mov x10, sp; cmp x9, x10; b.ne 1f; \
                  str x0, [x19, #8]; mov x0, xzr; ret; 1: b dyad_crossing_lost",
    },
    // fn(function, arguments: *const [u64; 6], out: *mut [u64; 2]): result, and 0 or an error. The
    // function's stack pointer is noted while it is called, what was noted before is put back.
    Stub {
        name: "dyad_try_call",
        x86_64: "pushq %rbp; movq %rsp, %rbp; pushq %rbx; pushq %r12; movq %rdx, %rbx; \
                 movq %rdi, %r11; movq %rsi, %r10; movq $0, 8(%rbx); movq %fs:48, %r12; \
                 leaq -8(%rsp), %rax; movq %rax, %fs:48; movq (%r10), %rdi; movq 8(%r10), %rsi; \
                 movq 16(%r10), %rdx; movq 24(%r10), %rcx; movq 32(%r10), %r8; \
                 movq 40(%r10), %r9; callq *%r11; movq %r12, %fs:48; movq %rax, (%rbx); \
                 popq %r12; popq %rbx; popq %rbp; retq",
        aarch64: "stp x29, x30, [sp, #-32]!; mov x29, sp; stp x19, x20, [sp, #16]; mov x19, x2; \
                  mov x16, x0; mov x17, x1; str xzr, [x19, #8]; mrs x9, tpidr_el0; \
                  ldr x20, [x9, #56]; mov x10, sp; str x10, [x9, #56]; ldp x0, x1, [x17]; \
                  ldp x2, x3, [x17, #16]; ldp x4, x5, [x17, #32]; blr x16; mrs x9, tpidr_el0; \
                  str x20, [x9, #56]; str x0, [x19]; ldp x19, x20, [sp, #16]; \
                  ldp x29, x30, [sp], #32; ret",
    },
];

const _: () = {
    use dyad_abi::user::{gate, only_window, tcb_crossing};
    assert!(only_window(Isa::Aarch64).0 + gate::RETURN == 0x47c0_01f0);
    assert!(only_window(Isa::X86_64).0 + gate::RETURN == 0x4740_01f0);
    assert!(gate::ENTER == 0 && gate::BACK == 0x40 && gate::LOST == 0x80);
    assert!((3 + tcb_crossing(Isa::X86_64)) * 8 == 48);
    assert!((3 + tcb_crossing(Isa::Aarch64)) * 8 == 56);
};

/// Names of the routines that exist per ISA; [`INVOKED`](crate::INVOKED) only in services, those of
/// crossing and of migration, and an instruction for tests, only in programs that need them.
pub fn stub_names() -> impl Iterator<Item = &'static str> {
    let all = STUBS.iter().chain([&ENTERED]).chain(&CROSSING);
    let all = all.chain(&spine::STUBS).chain([&STRANGE]);
    all.map(|s| s.name)
}

fn stubs(isa: Isa, needs: Needs) -> String {
    let (triple, comment) = match isa {
        Isa::X86_64 => ("x86_64-unknown-none-elf", '@'),
        Isa::Aarch64 => ("aarch64-unknown-none", '%'),
    };
    let mut out = format!("target triple = \"{triple}\"\n");
    let service = needs.service.map(Door::stub);
    let crossing: &[Stub] = if needs.crossing { &CROSSING } else { &[] };
    let spine: &[Stub] = match needs.migrates {
        Some(_) => &spine::STUBS,
        None => &[],
    };
    let strange = needs.strange.then_some(&STRANGE);
    let some = service.into_iter().chain(crossing).chain(spine);
    let some = some.chain(strange);
    for stub in STUBS.iter().chain(some) {
        let name = stub.name;
        let section = match name {
            GATES => crate::align::GATES.to_owned(),
            _ => format!(".text.{name}"),
        };
        let body = match isa {
            Isa::X86_64 => stub.x86_64,
            Isa::Aarch64 => stub.aarch64,
        };
        let head = format!(
            ".section {section},\\22ax\\22,{comment}progbits; .globl {name}; \
             .type {name},{comment}function; .p2align 4; {name}:"
        );
        out.push_str(&format!("module asm \"{head}\"\n"));
        out.push_str(&format!("module asm \"{body}\"\n"));
        out.push_str(&format!("module asm \".size {name}, .-{name}\"\n"));
    }
    if let Some(sites) = needs.migrates {
        out.push_str(&spine::table(comment, sites));
    }
    out
}
