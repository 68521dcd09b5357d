//! Invocations: what a service has, and what a call of one costs its caller.

use crate::common;

use common::{build_sample, module, scratch, shared, tools};
use dyad_abi::Isa;
use dyad_abi::bundle::Bundle;
use goblin::elf::Elf;
use migrate_rt::build::BuiltApp;
use migrate_rt::codegen::{Door, Needs, compile_stubs};
use migrate_rt::ir::NeutralIr;
use migrate_rt::{DOORS, INVOKED};
use std::process::Command;

fn invoked(app: &BuiltApp) -> Option<u64> {
    let file = std::fs::read(&app.bundle).unwrap();
    Bundle::parse(&file).unwrap().invoked()
}

#[test]
fn bundles_say_where_services_are_entered() {
    let plain = build_sample(&shared(), &[]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(invoked(&plain), None);
    let service = build_sample(&scratch("service"), &["service"]);
    let service = service.unwrap_or_else(|e| panic!("{e}"));
    for elf in &service.elfs {
        let file = std::fs::read(elf).unwrap();
        let elf = Elf::parse(&file).unwrap();
        let at = elf
            .syms
            .iter()
            .find(|s| elf.strtab.get_at(s.st_name) == Some(INVOKED))
            .map(|s| s.st_value);
        assert!(at.is_some());
        assert_eq!(invoked(&service), at);
    }
}

/// The code of the entry of a service with this door.
fn entry(isa: Isa, door: Door) -> Vec<u8> {
    let needs = Needs {
        service: Some(door),
        ..Needs::default()
    };
    let dir = scratch(&format!("door-{isa}-{door:?}"));
    let file = compile_stubs(&tools(), isa, needs, &dir, "stubs").unwrap();
    let elf = Elf::parse(&file).unwrap();
    let mut syms = elf.syms.iter();
    let sym = syms.find(|s| elf.strtab.get_at(s.st_name) == Some(INVOKED));
    let sym = sym.unwrap();
    let section = &elf.section_headers[sym.st_shndx];
    let start = (section.sh_offset + sym.st_value) as usize;
    file[start..start + sym.st_size as usize].to_vec()
}

/// What is too deep is refused before the stack pointer is set, and the way back uses no stack.
#[test]
fn entries_with_a_limit_refuse_what_is_deeper_before_they_have_a_stack() {
    for (n, (_, limit)) in DOORS.into_iter().enumerate() {
        let limit = limit as u8;
        // cmp r9b, limit; ja refuse
        let code = entry(Isa::X86_64, Door::Limited(n));
        assert_eq!(code[..5], [0x41, 0x80, 0xf9, limit, 0x77], "{code:x?}");
        let refuse = 6 + usize::from(code[5]);
        // xor edi, edi; mov esi, TooDeep; xor edx, edx; xor r10d, r10d; xor r8d, r8d; syscall; ud2
        let back = [
            0x31, 0xff, 0xbe, 22, 0, 0, 0, 0x31, 0xd2, 0x45, 0x31, 0xd2, 0x45, 0x31, 0xc0, 0x0f,
            0x05, 0x0f, 0x0b,
        ];
        assert_eq!(code[refuse..], back, "{code:x?}");
        // What is not refused goes on as in other services.
        let open = entry(Isa::X86_64, Door::Open);
        assert_eq!(code[6..17], open[..11], "{code:x?} {open:x?}");

        let words = |door| -> Vec<u32> {
            let code = entry(Isa::Aarch64, door);
            let words = code.chunks_exact(4);
            words
                .map(|w| u32::from_le_bytes(w.try_into().unwrap()))
                .collect()
        };
        let (code, open) = (words(Door::Limited(n)), words(Door::Open));
        // and x9, x5, #0xff; cmp x9, #limit; b.hi refuse
        assert_eq!(code[0], 0x9240_1ca9, "{code:x?}");
        assert_eq!(code[1], 0xf100_013f | u32::from(limit) << 10, "{code:x?}");
        assert_eq!(code[2] & 0xff00_001f, 0x5400_0008, "{code:x?}");
        let refuse = 2 + (code[2] >> 5 & 0x7_ffff) as usize;
        // mov x0, xzr; mov x1, #TooDeep; mov x2 to x4, xzr; svc #0; brk #1
        let back = [
            0xaa1f_03e0,
            0xd280_02c1,
            0xaa1f_03e2,
            0xaa1f_03e3,
            0xaa1f_03e4,
            0xd400_0001,
            0xd420_0020,
        ];
        assert_eq!(code[refuse..], back, "{code:x?}");
        assert_eq!(code[3..6], open[..3], "{code:x?} {open:x?}");
    }
}

/// The assembly of a function that passes its arguments on to an invocation, and keeps one of them.
fn assembly(isa: Isa) -> String {
    let body = "declare [2 x i64] @dyad_request(i64, i64, i64, i64, i64)\n\
        define i64 @forward(i64 %w, i64 %a, i64 %b, i64 %c, i64 %d, i64 %keep) nounwind {\n  \
        %r = call [2 x i64] @dyad_request(i64 %w, i64 %a, i64 %b, i64 %c, i64 %d)\n  \
        %v = extractvalue [2 x i64] %r, 1\n  \
        %s = add i64 %v, %keep\n  \
        ret i64 %s\n}\n";
    let neutral = NeutralIr::check(module(Isa::Aarch64, body)).unwrap();
    let dir = scratch(&format!("invocation-{isa}"));
    let input = dir.join("x.ll");
    std::fs::write(&input, neutral.for_isa(isa).text()).unwrap();
    let flags = migrate_rt::codegen::flags(isa).filter(|f| !f.contains("filetype"));
    let output = Command::new(tools().llc)
        .args(flags)
        .args(["-filetype=asm", "-o", "-"])
        .arg(&input)
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The pipeline relies on which registers the back ends' convention takes for arguments. They are
/// those that the function has got its own in: nothing may be moved.
#[test]
fn arguments_are_where_kernels_want_them_and_nothing_else_is_in_registers() {
    for (isa, call, arguments, saved) in [
        (
            Isa::X86_64,
            "callq\tdyad_request",
            ["%rdi", "%rsi", "%rdx", "%rcx", "%r8"],
            ["%rbx", "%r12", "%r13", "%r14", "%r15"].as_slice(),
        ),
        (
            Isa::Aarch64,
            "bl\tdyad_request",
            ["x0", "x1", "x2", "x3", "x4"],
            ["x20, x19", "x28, x27", "d9, d8", "d15, d14"].as_slice(),
        ),
    ] {
        let text = assembly(isa);
        let (before, after) = text.split_once(call).unwrap_or_else(|| panic!("{text}"));
        for line in before
            .lines()
            .map(str::trim)
            .filter(|l| l.starts_with("mov"))
        {
            let touched = arguments
                .iter()
                .any(|a| line.split([' ', '\t', ',']).any(|w| w == *a));
            assert!(!touched, "{line}\n{text}");
        }
        // What the function's own caller wants kept is saved by it, once.
        for registers in saved {
            assert!(before.contains(registers), "{registers}\n{text}");
            assert!(after.contains(registers), "{registers}\n{text}");
        }
        // The sixth argument is read back from memory.
        let kept = match isa {
            Isa::X86_64 => "(%rbp)",
            Isa::Aarch64 => "ldr\t",
        };
        assert!(after.contains(kept), "{text}");
    }
}
