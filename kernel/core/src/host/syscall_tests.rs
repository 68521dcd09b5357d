//! System calls with bad arguments: the documented error, and nothing else.

use core::sync::atomic::Ordering;

use dyad_abi::syscall::Syscall;
use dyad_abi::user::{HEAP_BASE, MAX_REPORT_DETAIL, MAX_REPORT_NAME, PAGE_SIZE, USER_END};
use dyad_abi::{Error, Isa};

use super::{Left, Machine, MockX86, World, result};
use crate::sched;
use crate::space::Space;
use crate::thread::ThreadFrame;
use crate::user_copy::copy_out;

fn running(w: &World) -> (Machine, &'static ThreadFrame) {
    let x = w.machine(0);
    let t = x.thread::<MockX86>();
    x.enter();
    sched::make_ready(x.node(), x.local(), t);
    x.kernel(|| sched::run::<MockX86>());
    (x, t)
}

fn call(x: Machine, t: &'static ThreadFrame, op: Syscall, a: &[u64]) -> (u64, u64) {
    let left = x.call::<MockX86>(t, op as u64, a);
    assert!(matches!(left, Left::User(_)), "{op:?} {a:x?}: {left:?}");
    result::<MockX86>(t)
}

#[test]
fn bad_arguments_get_the_documented_errors() {
    use Error::*;
    use Syscall::*;
    let w = World::new(&[Isa::X86_64, Isa::Aarch64], 60);
    let (x, t) = running(&w);
    let (ok, at) = call(x, t, MapAnon, &[2 * PAGE_SIZE]);
    assert_eq!((ok, at), (0, HEAP_BASE));
    for (op, args, error) in [
        (MapAnon, &[0][..], BadArgument),
        (MapAnon, &[PAGE_SIZE + 1], BadArgument),
        (MapAnon, &[u64::MAX - 4095], TooLarge),
        (Unmap, &[at, PAGE_SIZE], BadArgument),
        (Unmap, &[at + PAGE_SIZE, PAGE_SIZE], BadArgument),
        (Unmap, &[u64::MAX - 4095, 2 * PAGE_SIZE], BadArgument),
        (Unmap, &[0, 0], BadArgument),
        (Write, &[at + 2 * PAGE_SIZE - 1, 2], BadAddress),
        (Write, &[0, 1], BadAddress),
        (Write, &[u64::MAX, u64::MAX], BadAddress),
        (Write, &[dyad_shm::FUSED_BASE, 8], BadAddress),
        (SysInfo, &[0, 8], BadAddress),
        (SysInfo, &[USER_END - 8, u64::MAX], BadAddress),
        (Args, &[1, 1], BadAddress),
        (Report, &[0], BadAddress),
        (Report, &[at], BadArgument),
        (Translate, &[at, 2], BadArgument),
        (Translate, &[0, 0], BadAddress),
        (Translate, &[dyad_shm::FUSED_BASE, 1], BadAddress),
        (Migrate, &[9], NoSuchNode),
    ] {
        assert_eq!(call(x, t, op, args), (error.code(), 0), "{op:?} {args:x?}");
    }
    for number in [14, 15, 1 << 32, u64::MAX] {
        x.call::<MockX86>(t, number, &[1, 2, 3, 4, 5]);
        assert_eq!(result::<MockX86>(t), (BadSyscall.code(), 0));
    }
    assert_eq!(call(x, t, Args, &[at, 3]), (0, 12));
    assert_eq!(call(x, t, Write, &[at, 0]), (0, 0));
    assert_eq!(call(x, t, Unmap, &[at, 2 * PAGE_SIZE]), (0, 0));
}

/// A record that is cut is no record: a failed check could hide behind a detail that is all
/// invalid bytes or quotes.
#[test]
fn the_longest_report_is_one_whole_record() {
    for byte in [0xff, b'"', b'\\', b'\n', 0, b'x'] {
        let w = World::new(&[Isa::X86_64, Isa::Aarch64], 60);
        let (x, t) = running(&w);
        let (_, at) = call(x, t, Syscall::MapAnon, &[2 * PAGE_SIZE]);
        let s = Space::find(x.node(), t.space.load(Ordering::Relaxed)).unwrap();
        let text = [byte; MAX_REPORT_DETAIL];
        copy_out::<MockX86>(x.node(), &s, at + PAGE_SIZE, &text).unwrap();
        let words = [
            0,
            0,
            at + PAGE_SIZE,
            MAX_REPORT_NAME as u64,
            at + PAGE_SIZE,
            MAX_REPORT_DETAIL as u64,
        ];
        for (i, w) in words.iter().enumerate() {
            copy_out::<MockX86>(x.node(), &s, at + 8 * i as u64, &w.to_le_bytes()).unwrap();
        }
        x.printed();
        // Kinds are numbered from 0 or 1; the first that is taken is a check.
        let kind = dyad_abi::user::ReportKind::Check as u64;
        copy_out::<MockX86>(x.node(), &s, at, &kind.to_le_bytes()).unwrap();
        assert_eq!(call(x, t, Syscall::Report, &[at]), (0, 0));
        let out = x.printed();
        assert!(
            out.ends_with("\"}\n") && !out.contains("..."),
            "{byte:#x}: {out}"
        );
        assert!(out.contains("\"ok\":false"));
    }
}

#[test]
fn a_program_that_exits_gives_everything_back() {
    let w = World::new(&[Isa::X86_64, Isa::Aarch64], 60);
    let (x, t) = running(&w);
    let (_, at) = call(x, t, Syscall::MapAnon, &[8 * PAGE_SIZE]);
    let s = Space::find(x.node(), t.space.load(Ordering::Relaxed)).unwrap();
    copy_out::<MockX86>(x.node(), &s, at, &[1; 9000]).unwrap();
    let left = x.call::<MockX86>(t, Syscall::Exit as u64, &[3]);
    assert_eq!(left, Left::Exited(dyad_abi::record::EXIT_FAILED));
    assert_eq!(x.used(), 0);
    assert!(x.printed().contains("ended with code 3"));
}
