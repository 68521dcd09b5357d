//! The wrappers against the emulated system.

use std::string::String;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec::Vec;

use dyad_sys::*;

use crate::program_local;
use dyad_host::{Config, Outcome, run};

fn config(nodes: &[Isa]) -> Config {
    Config {
        nodes: nodes.to_vec(),
        args: String::from("--class S"),
        ..Config::default()
    }
}

fn node(n: u64) -> NodeId {
    NodeId::new(n).unwrap()
}

#[test]
fn each_side_continues_where_it_left() {
    static ENTRIES: AtomicUsize = AtomicUsize::new(0);
    program_local! { static TRACE: core::cell::RefCell<Vec<(Isa, u32)>> = Default::default(); }

    fn entry(_: u64) -> ! {
        ENTRIES.fetch_add(1, Ordering::Relaxed);
        // A value on this side's native stack: it must still be there after a round trip.
        for step in 0..3 {
            TRACE.with(|t| t.borrow_mut().push((isa(), step)));
            let there = if isa() == Isa::X86_64 { 1 } else { 0 };
            let back_on = migrate(node(there)).unwrap();
            assert_eq!(back_on, where_am_i().unwrap().node);
        }
        let text = TRACE.with(|t| std::format!("{:?}", t.borrow()));
        write(&text).unwrap();
        exit(7)
    }

    let Outcome {
        code,
        output,
        migrations,
        ..
    } = run(config(&Isa::ALL), entry);
    assert_eq!((code, ENTRIES.load(Ordering::Relaxed)), (7, 2));
    assert_eq!(
        output,
        "[(X86_64, 0), (Aarch64, 0), (X86_64, 1), (Aarch64, 1), (X86_64, 2), (Aarch64, 2)]"
    );
    assert_eq!(migrations.len(), 6);
}

/// What threads meet at is one value for all of them, also if all come to it first.
#[test]
fn threads_that_come_first_find_the_same_value() {
    use std::sync::Barrier;
    const THREADS: usize = 8;
    static ALL: Barrier = Barrier::new(THREADS);
    program_local! { static VALUE: AtomicUsize = {
        // As long as others take to come here, too.
        std::thread::sleep(std::time::Duration::from_millis(20));
        AtomicUsize::new(0)
    }; }

    fn entry(argument: u64) -> ! {
        let me = thread::Number::of_argument(argument).unwrap();
        if me == thread::Number::FIRST {
            for n in 1..THREADS as u64 {
                let n = thread::Number::new(n).unwrap();
                thread::start(n, node(0), dyad_abi::CpuId::new(0).unwrap()).unwrap();
            }
        }
        ALL.wait();
        VALUE.with_any(|v| v.fetch_add(1, Ordering::Relaxed));
        ALL.wait();
        match me {
            thread::Number::FIRST => exit(VALUE.with_any(|v| v.load(Ordering::Relaxed)) as u32),
            _ => thread::end(),
        }
    }
    assert_eq!(run(config(&[Isa::X86_64]), entry).code, THREADS as u32);
}

#[test]
fn same_isa_migration_returns_there() {
    fn entry(_: u64) -> ! {
        assert_eq!(migrate(node(2)), Ok(node(2)));
        assert_eq!(where_am_i().unwrap().node, node(2));
        assert_eq!(isa(), Isa::X86_64);
        assert_eq!(migrate(node(3)), Err(Error::NoSuchNode));
        dyad_host::kill_node(node(0));
        assert_eq!(migrate(node(0)), Err(Error::NodeDead));
        exit(0)
    }
    let nodes = [Isa::X86_64, Isa::Aarch64, Isa::X86_64];
    assert_eq!(run(config(&nodes), entry).code, 0);
}

#[test]
fn a_panicking_program_ends() {
    fn entry(_: u64) -> ! {
        panic!("expected in this test")
    }
    assert_eq!(run(config(&Isa::ALL), entry).code, 101);
}

#[test]
fn information_comes_back_whole() {
    fn entry(_: u64) -> ! {
        let info = sys_info().unwrap();
        assert_eq!(
            (info.node_count, info.nodes[1].isa),
            (2, Isa::Aarch64 as u32)
        );
        let mut small = [0; 4];
        assert_eq!(args(&mut small), Ok(9));
        assert_eq!(&small, b"--cl");
        let t0 = now().unwrap();
        sleep_until(t0 + 3_600_000_000_000).unwrap();
        assert!(now().unwrap() >= t0 + 3_600_000_000_000);
        exit(0)
    }
    assert_eq!(run(config(&Isa::ALL), entry).code, 0);
}

#[test]
fn long_texts_are_cut_between_characters() {
    let text = "é".repeat(4000);
    assert_eq!(write(&text), Ok(4096));
    report_check(&"a".repeat(65), true, &"ö".repeat(200)).unwrap();
    for (name, why) in [
        ("ä", Error::BadArgument),
        ("a\nb", Error::BadArgument),
        ("app.exit", Error::Denied),
    ] {
        assert_eq!(report_check(name, true, ""), Err(why));
        assert_eq!(report_counter(name, 1), Err(why));
    }
    report_counter("n", 2).unwrap();
    report_counter("n", 3).unwrap();
    let outcome = dyad_host::outcome();
    assert_eq!(outcome.output.len(), 4096);
    assert_eq!(outcome.checks[0].name, "a".repeat(64));
    assert_eq!(outcome.checks[0].detail, "ö".repeat(128));
    assert_eq!((outcome.checks.len(), outcome.counters["n"]), (1, 5));
}

#[test]
fn memory_is_mapped_zeroed_and_given_back() {
    let start = map_anon(5000).unwrap();
    // SAFETY: 1. 5000 bytes are rounded up to two pages, which are ours.
    let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), 8192) };
    assert!(bytes.iter().all(|&b| b == 0));
    let here = start.as_ptr() as u64;
    let seen = Isa::ALL.map(|isa| translate(here, isa).unwrap());
    assert_eq!(seen[0], seen[1]);
    // SAFETY: 1. `bytes` is not used below.
    unsafe {
        assert_eq!(unmap(start, 4096), Err(Error::NotFound));
        assert_eq!(unmap(start, 8192), Ok(()));
        assert_eq!(unmap(start, 8192), Err(Error::NotFound));
    }
    assert!(map_anon(0).is_err());
    assert_eq!(map_anon(u64::MAX), Err(Error::TooLarge));
}

#[test]
fn calls_are_checked_before_anything_happens() {
    let status = |word: u64| {
        // SAFETY: 1. None of these takes addresses or memory.
        unsafe { raw::call_raw(word, [0; 5]) }.status
    };
    use dyad_abi::cap::{HardwareOp, ThreadOp, call_word};
    use dyad_abi::service::slot;
    let refused = |word, e: Error| assert_eq!(status(word), e.code(), "{word:#x}");
    refused(0, Error::TooDeep);
    refused(call_word(slot::THREAD, 77), Error::BadSyscall);
    refused(call_word(slot::THREAD, 29), Error::Denied);
    refused(
        1 << 40 | call_word(slot::THREAD, ThreadOp::Yield as u32),
        Error::BadSyscall,
    );
    refused(call_word(cap::CapIndex(64), 0), Error::NoCap);
    refused(
        call_word(slot::THREAD, ThreadOp::Stop as u32),
        Error::Denied,
    );
    refused(
        call_word(slot::hardware(node(0)), HardwareOp::Shutdown as u32),
        Error::Denied,
    );
    refused(
        call_word(slot::hardware(node(2)), HardwareOp::Now as u32),
        Error::NoCap,
    );
    assert_eq!(
        status(call_word(slot::hardware(node(1)), HardwareOp::Now as u32)),
        0
    );
}

#[test]
fn errors_of_the_kernel_and_of_services_are_told_apart() {
    use cap::{Cap, Sinv};
    use dyad_abi::service::{pager, slot};
    let pager = Cap::<Sinv>::at(slot::PAGER);
    // The kernel's word is the status; the service's is the first word of its reply.
    assert_eq!(
        Cap::<Sinv>::at(cap::CapIndex(64)).request([0; 4]),
        Err(Error::NoCap)
    );
    assert_eq!(
        Cap::<Sinv>::at(slot::THREAD).invoke([0; 4]),
        Err(Error::Denied)
    );
    assert_eq!(pager.request([99, 0, 0, 0]), Err(Error::BadArgument));
    assert_eq!(pager.invoke([99, 0, 0, 0]), Ok(Error::BadArgument.code()));
    let all = pager.invoke_all([pager::MAP_ANON, 4096, 0, 0]).unwrap();
    assert_eq!((all[0], all[1] % 4096, all[2], all[3]), (0, 0, 0, 0));
    assert_ne!(all[1], 0);
}

#[test]
fn the_info_page_is_checked() {
    let info = info().unwrap();
    assert_eq!((info.args_len, info.cpus), (0, 1));
    dyad_host::kill_node(node(1));
    let system = sys_info().unwrap();
    assert_eq!((system.nodes[0].live, system.nodes[1].live), (1, 0));
}
