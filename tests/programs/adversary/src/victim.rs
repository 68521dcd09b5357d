//! The victim: a program with a thread on each node, which checks itself all the time, and notes what it observes.
//!
//! A round is: a call of each service, private memory, its own table, its stack over a yield, registers, messages,
//! a thread of its own that it runs to its end, its budgets, and every few rounds memory of its own. What it observes
//! (answers, values, results; no times) goes into a hash, which must be the same whatever others do.

use core::hint::black_box;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use dyad_abi::Error;
use dyad_abi::cap::{
    CapIndex, CaptblOp, Event, HardwareOp, INTROSPECT, MemoryOp, ObjectKind, ReceiveOp, Rights,
    SendOp, SinvOp, Stopped, ThreadOp, TimeOp, Woken, call_word,
};
use dyad_abi::user::Where;
use dyad_sys::raw;

use crate::plan::{
    Role, SIDES, answer, ask, at, found, is_over, mix, report, victim_id, word, wrong,
};
use crate::service::check_self;

/// Slice of the thread that the victim makes.
const SLICE_NS: u64 = 200_000;
/// Attempts at an operation that has to wait for quiescence.
const PATIENCE: u32 = 2_000_000;
/// Memory of the victim is used once in so many rounds.
const MEMORY_ROUNDS: u64 = 64;

/// What a thread of the victim knows.
struct Victim {
    node: u64,
    trace: u64,
}

fn call(cap: CapIndex, operation: u32, args: [u64; 5]) -> Result<u64, u64> {
    // SAFETY: 1. No operation that is called here takes an address; memory that is taken away is not mapped.
    #[allow(unsafe_code)]
    let r = unsafe { raw::call_raw(call_word(cap, operation), args) };
    match r.status {
        0 => Ok(r.value),
        e => Err(e),
    }
}

/// Runs the victim's thread on a node.
pub fn live(node: u64) -> ! {
    let mut v = Victim { node, trace: 0 };
    let rounds = report(word::ROUNDS).load(Relaxed);
    let mut round = 0;
    while !is_over() && (rounds == 0 || round < rounds) && v.is_at_home() {
        round += 1;
        v.round(round);
        report(word::trace(node)).store(v.trace, Relaxed);
        report(word::made(node)).store(round, Release);
    }
    loop {
        let _ = call(at::thread(node), ThreadOp::Exit as u32, [0; 5]);
    }
}

/// Life of the thread that the victim makes: an answer as the exit code.
pub fn help(n: u64) -> ! {
    let (node, round) = (n >> 15, n & 0x7fff);
    let mut x = round;
    for _ in 0..200 {
        x = black_box(mix(x));
    }
    loop {
        let _ = call(
            at::child(node),
            ThreadOp::Exit as u32,
            [x & 0xffff_ffff, 0, 0, 0, 0],
        );
    }
}

fn helped(round: u64) -> u64 {
    (0..200).fold(round & 0x7fff, |x, _| mix(x)) & 0xffff_ffff
}

impl Victim {
    /// Notes an observation.
    fn note(&mut self, what: u64) {
        self.trace = mix(self.trace ^ what);
    }

    /// Notes a result that must be this value.
    fn must(&mut self, result: Result<u64, u64>, value: u64, what: u64) {
        match result {
            Ok(v) if v == value => {}
            Ok(v) => found(
                wrong::OBJECT,
                what << 56 | self.node << 48 | v & 0xff_ffff_ffff,
            ),
            Err(e) => found(wrong::REFUSED, what << 56 | self.node << 48 | e),
        }
        self.note(result.unwrap_or_else(|e| e << 32));
    }

    /// Repeats an operation until it need not wait for quiescence any more.
    fn patiently(&mut self, cap: CapIndex, operation: u32, args: [u64; 5], what: u64) -> u64 {
        for _ in 0..PATIENCE {
            match call(cap, operation, args) {
                Err(e) if e == Error::Again.code() => self.yields(),
                Err(e) => {
                    found(wrong::REFUSED, what << 56 | e);
                    self.note(e << 32);
                    return 0;
                }
                Ok(v) => return v,
            }
        }
        found(wrong::REFUSED, what << 56 | 0xffff);
        0
    }

    fn yields(&self) {
        if let Err(e) = call(at::thread(self.node), ThreadOp::Yield as u32, [0; 5]) {
            found(wrong::REFUSED, 1 << 56 | e);
        }
    }

    /// Whether the thread is on its node. If that dies before the thread has begun, the thread begins elsewhere: it is
    /// nobody's victim there.
    fn is_at_home(&self) -> bool {
        let place = call(at::hardware(self.node), HardwareOp::Where as u32, [0; 5]);
        place.is_ok_and(|p| Where::unpack(p).is_some_and(|w| w.node.index() as u64 == self.node))
    }

    fn round(&mut self, round: u64) {
        self.invokes(round);
        check_self(round);
        self.table(round);
        self.stack(round);
        self.registers(round);
        self.messages();
        self.helper(round);
        self.time();
        if round % MEMORY_ROUNDS == 1 {
            self.memory();
        }
        if report(word::NOTE_TIME).load(Relaxed) != 0 {
            let now = call(at::hardware(self.node), HardwareOp::Now as u32, [0; 5]);
            self.note(now.unwrap_or(0));
        }
        self.yields();
    }

    fn invokes(&mut self, round: u64) {
        for (i, service) in [at::service(self.node), at::homely(self.node)]
            .into_iter()
            .enumerate()
        {
            let mut reply = [0; 4];
            let a = mix(round ^ self.trace);
            let status = raw::invoke(
                call_word(service, SinvOp::Invoke as u32),
                [ask::NEXT, round, a, 0],
                &mut reply,
            );
            let [error, value, badge, _] = reply;
            if status != 0 || error != 0 {
                found(
                    wrong::REFUSED,
                    2 << 56 | (i as u64) << 48 | error << 32 | status,
                );
            } else if value != answer(round, a) || badge != crate::plan::badge::victim(self.node) {
                found(wrong::ANSWER, value);
            }
            self.note(value);
        }
    }

    /// Its own table, as the capability for the root tells.
    fn table(&mut self, round: u64) {
        let first = round % 4 * 16;
        for i in first.max(1)..first + 16 {
            let read = call(at::TABLE, CaptblOp::Read as u32, [i, 0, 0, 0, 0]);
            let seen = call(CapIndex(i as u32), INTROSPECT, [0; 5]);
            if seen.is_ok() && read != seen {
                found(wrong::TABLE, 0x100 | i);
            }
            self.note(read.unwrap_or(u64::MAX));
        }
    }

    fn stack(&mut self, round: u64) {
        let kept: [AtomicU64; 32] =
            core::array::from_fn(|i| AtomicU64::new(mix(round ^ (i as u64) << 32)));
        self.yields();
        for (i, w) in black_box(&kept).iter().enumerate() {
            if w.load(Relaxed) != mix(round ^ (i as u64) << 32) {
                found(wrong::STACK, i as u64);
            }
        }
    }

    /// Whole numbers and floating point, over more than a slice now and then.
    fn registers(&mut self, round: u64) {
        let n = 64 + mix(round) % 1024;
        let (mut x, mut f, mut y, mut g) = (round, 1.0f64, round, 1.0f64);
        for _ in 0..n {
            x = black_box(mix(x));
            f = black_box(f * 1.000_000_1 + 0.5);
        }
        for _ in 0..n {
            y = mix(y);
            g = g * 1.000_000_1 + 0.5;
        }
        if x != y || f.to_bits() != g.to_bits() {
            found(wrong::REGISTER, x ^ y);
        }
        self.note(x ^ f.to_bits());
    }

    /// Only what it sends itself comes to its own line.
    fn messages(&mut self) {
        let line = 32 + self.node;
        let receive = || call(at::ENDPOINTS, ReceiveOp::Receive as u32, [line, 1, 0, 0, 0]);
        let nothing = receive();
        if nothing.is_ok_and(|bits| bits != 0) {
            found(wrong::MESSAGE, nothing.unwrap_or(0));
        }
        self.must(nothing, 0, 3);
        let sent = call(at::scratch(self.node), SendOp::Send as u32, [0; 5]);
        self.must(sent, 0, 4);
        self.must(receive(), 1 << self.node, 5);
    }

    /// A thread of its own, from its configuration to its end.
    fn helper(&mut self, round: u64) {
        let node = self.node;
        let thread = |op: ThreadOp, args| call(at::child(node), op as u32, args);
        let tag = 0x1000 + node;
        let configured = thread(
            ThreadOp::Configure,
            [
                at::COMPONENT.get().into(),
                report(word::ENTRY).load(Relaxed),
                Role::Helper.arg(node << 15 | round & 0x7fff),
                (victim_id(node) + 1) | tag << 32,
                u64::from(at::ENDPOINTS.get()) | u64::from(at::IDS.get()) << 32,
            ],
        );
        self.must(configured, 0, 6);
        self.must(thread(ThreadOp::Resume, [0; 5]), 0, 7);
        let event = Event {
            tag: tag as u32,
            why: Woken::Ready,
        };
        // The event is at the line of the CPU that has configured the thread: this thread may come back from a call on
        // another CPU than it was on before.
        let receive = |cpu| {
            let line = 8 * node + cpu;
            call(at::ENDPOINTS, ReceiveOp::Receive as u32, [line, 1, 0, 0, 0])
        };
        // If another node dies, what becomes of the thread there is told here.
        let others = |heard: &Result<u64, u64>| {
            let event = heard.ok().and_then(Event::from_bits);
            event.is_some_and(|e| {
                e.tag != tag as u32 && (0x1000..0x1000 + SIDES).contains(&e.tag.into())
            })
        };
        let hear = |cpu| match receive(cpu) {
            heard if others(&heard) => receive(cpu),
            heard => heard,
        };
        let cpus = report(word::CPUS).load(Relaxed);
        let heard = (0..cpus).map(hear).find(|heard| *heard != Ok(0));
        let heard = heard.unwrap_or(Ok(0));
        self.must(heard, event.bits(), 8);
        for _ in 0..PATIENCE {
            let time: u64 = at::TIME.get().into();
            let run = thread(ThreadOp::Dispatch, [SLICE_NS | 9 << 56, time, 0, 0, 0]);
            let why = run.ok().and_then(|v| Stopped::from_number(v & 0xff));
            match why {
                Some(Stopped::Preempted | Stopped::Interrupted | Stopped::Yielded) => continue,
                Some(Stopped::Exited) => {}
                _ => found(wrong::OBJECT, 9 << 56 | run.unwrap_or_else(|e| e << 32)),
            }
            self.note(run.unwrap_or_else(|e| e << 32));
            if run.is_ok_and(|v| v >> 8 != helped(round)) {
                found(wrong::OBJECT, 10 << 56 | run.unwrap_or(0));
            }
            return;
        }
        found(wrong::OBJECT, 11 << 56);
    }

    /// A budget that nobody runs on holds what was put there.
    fn time(&mut self) {
        let node = self.node;
        let saved = if node == 0 { at::TIME_2 } else { at::SPARE };
        let before = call(saved, TimeOp::Read as u32, [0; 5]);
        let moved = call(
            at::TIME,
            TimeOp::Transfer as u32,
            [saved.get().into(), 7, 0, 0, 0],
        );
        self.must(moved, 0, 12);
        let after = call(saved, TimeOp::Read as u32, [0; 5]);
        self.must(after, before.unwrap_or(0) + 7, 13);
    }

    /// Memory of its own: a page, then an object, then nothing.
    fn memory(&mut self) {
        let frame = 2 * self.node;
        let op = |op: MemoryOp| op as u32;
        self.patiently(
            at::MEMORY,
            op(MemoryOp::RetypeUser),
            [frame, 0, 0, 0, 0],
            14,
        );
        let word = call(at::MEMORY, op(MemoryOp::Inspect), [frame, 0, 0, 0, 0]);
        self.note(word.map_or(u64::MAX, |w| w & 0xffff_ffff));
        let slot = at::scratch(2 + self.node);
        let place = u64::from(at::TABLE.get()) << 32 | u64::from(slot.get());
        let args = [frame, place, Rights::ALL.0.into(), 0, 0];
        self.patiently(at::MEMORY, op(MemoryOp::Activate), args, 15);
        let seen = call(slot, INTROSPECT, [0; 5]);
        self.note(seen.unwrap_or(u64::MAX));
        let untyped = call(at::MEMORY, op(MemoryOp::RetypeUntyped), [frame, 0, 0, 0, 0]);
        self.must(untyped.map(|_| 0), 0, 16);
        self.must(
            call(
                at::TABLE,
                CaptblOp::Deactivate as u32,
                [slot.get().into(), 0, 0, 0, 0],
            )
            .map(|_| 0),
            0,
            17,
        );
        let kind = ObjectKind::Liveness as u64;
        self.patiently(
            at::MEMORY,
            op(MemoryOp::RetypeKernel),
            [frame + 1, kind, 0, 0, 0],
            18,
        );
        let untyped = call(
            at::MEMORY,
            op(MemoryOp::RetypeUntyped),
            [frame + 1, 0, 0, 0, 0],
        );
        self.must(untyped.map(|_| 0), 0, 19);
    }
}
