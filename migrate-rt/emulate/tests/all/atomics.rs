//! Atomic instructions are one step: a thread that runs natively and one that is interpreted change the
//! same word, and nothing is lost.

use dyad_emulate::{Access, Cpu, Event, Fault, FaultKind, Memory, Width, a64, x86};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

const CODE: u64 = 0x1000;
const WORD: u64 = 0x2000;
/// How often each of the threads runs at least.
const TURNS: u64 = 30_000;

/// The code, and one word that another thread uses.
struct Shared<'a> {
    code: &'a [u8],
    word: &'a AtomicU64,
}

fn fault(va: u64, access: Access) -> Fault {
    let kind = FaultKind::Unmapped;
    Fault { va, access, kind }
}

impl Memory for Shared<'_> {
    fn fetch(&mut self, va: u64, bytes: &mut [u8]) -> Result<usize, Fault> {
        let rest = (va.checked_sub(CODE))
            .and_then(|at| self.code.get(at as usize..))
            .filter(|rest| !rest.is_empty())
            .ok_or(fault(va, Access::Fetch))?;
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn load<const N: usize>(&mut self, va: u64) -> Result<[u8; N], Fault> {
        if va != WORD || N > 8 {
            return Err(fault(va, Access::Load));
        }
        let value = self.word.load(Ordering::Acquire).to_le_bytes();
        Ok(core::array::from_fn(|i| value[i]))
    }

    fn store<const N: usize>(&mut self, va: u64, bytes: [u8; N]) -> Result<(), Fault> {
        let whole: Vec<u8> = bytes.to_vec();
        match whole.try_into() {
            Ok(eight) if va == WORD => {
                self.word
                    .store(u64::from_le_bytes(eight), Ordering::Release);
                Ok(())
            }
            _ => Err(fault(va, Access::Store)),
        }
    }

    fn compare_exchange(
        &mut self,
        va: u64,
        width: Width,
        expected: u128,
        new: u128,
    ) -> Result<u128, Fault> {
        if va != WORD || width != Width::B8 {
            return Err(fault(va, Access::Update));
        }
        let done = self.word.compare_exchange(
            expected as u64,
            new as u64,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        Ok(done.unwrap_or_else(|found| found).into())
    }
}

/// What the two threads have done.
struct Done {
    /// How often the code was interpreted.
    interpreted: u64,
    /// How often the other one ran.
    native: u64,
    /// The word at the end.
    word: u64,
    /// What was asked of the registers after each turn, summed up.
    sum: u64,
}

/// Interprets the code from its start to its end again and again, while `native` runs on another
/// thread, until both have done so at least [`TURNS`] times.
fn together<C: Cpu>(
    code: &[u8],
    cpu: impl Fn() -> C + Sync,
    taken: impl Fn(&C) -> u64 + Sync,
    native: impl Fn(&AtomicU64) + Sync,
) -> Done {
    let (word, count) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let start = Barrier::new(2);
    let end = CODE + code.len() as u64;
    let (interpreted, sum) = thread::scope(|s| {
        let interpreted = s.spawn(|| {
            start.wait();
            let mut memory = Shared { code, word: &word };
            let (mut turns, mut sum) = (0, 0u64);
            while turns < TURNS || count.load(Ordering::Relaxed) < TURNS {
                let mut cpu = cpu();
                while cpu.pc() != end {
                    let event = cpu.step(&mut memory);
                    assert_eq!(event, Ok(Event::Continue), "at {:#x}", cpu.pc());
                }
                sum = sum.wrapping_add(taken(&cpu));
                turns += 1;
            }
            over.store(true, Ordering::Relaxed);
            (turns, sum)
        });
        start.wait();
        while !over.load(Ordering::Relaxed) && !interpreted.is_finished() {
            native(&word);
            count.fetch_add(1, Ordering::Relaxed);
        }
        interpreted.join().unwrap()
    });
    Done {
        interpreted,
        native: count.into_inner(),
        word: word.into_inner(),
        sum,
    }
}

fn add(word: &AtomicU64) {
    word.fetch_add(1, Ordering::SeqCst);
}

fn add_by_exchange(word: &AtomicU64) {
    let mut old = word.load(Ordering::Relaxed);
    while let Err(found) =
        word.compare_exchange_weak(old, old + 1, Ordering::SeqCst, Ordering::Relaxed)
    {
        old = found;
    }
}

fn x86_state() -> x86::State {
    let mut state = x86::State {
        rip: CODE,
        ..x86::State::default()
    };
    state.gpr[7] = WORD;
    state.gpr[2] = 1;
    state
}

fn a64_state() -> a64::State {
    let mut state = a64::State {
        pc: CODE,
        ..a64::State::default()
    };
    state.x[0] = WORD;
    state.x[1] = 1;
    state
}

/// Code that adds 1 to the word.
const X86_ADDS: [(&str, &[u8]); 5] = [
    ("lock incq (%rdi)", &[0xf0, 0x48, 0xff, 0x07]),
    ("lock addq $1, (%rdi)", &[0xf0, 0x48, 0x83, 0x07, 0x01]),
    ("lock xaddq %rdx, (%rdi)", &[0xf0, 0x48, 0x0f, 0xc1, 0x17]),
    ("lock subq $-1, (%rdi)", &[0xf0, 0x48, 0x83, 0x2f, 0xff]),
    (
        "movq (%rdi), %rax; 1: leaq 1(%rax), %rcx; lock cmpxchgq %rcx, (%rdi); jne 1b",
        &[
            0x48, 0x8b, 0x07, 0x48, 0x8d, 0x48, 0x01, 0xf0, 0x48, 0x0f, 0xb1, 0x0f, 0x75, 0xf5,
        ],
    ),
];

#[test]
fn locked_instructions_of_x86_64_lose_nothing() {
    for (text, code) in X86_ADDS {
        for other in [add, add_by_exchange] {
            let done = together(code, x86_state, |_| 0, other);
            assert_eq!(done.word, done.interpreted + done.native, "{text}");
        }
    }
}

/// `xchg` takes what is there, all of it and once, without a prefix.
#[test]
fn exchanges_of_x86_64_take_everything_once() {
    let code = [0x48, 0x87, 0x07];
    let done = together(&code, x86_state, |s| s.gpr[0], add);
    assert_eq!(done.word + done.sum, done.native);
}

const A64_ADDS: [(&str, &[u32]); 4] = [
    ("ldaddal x1, x2, [x0]", &[0xf8e1_0002]),
    ("ldadd x1, xzr, [x0]", &[0xf821_001f]),
    (
        "1: ldaxr x3, [x0]; add x3, x3, x1; stlxr w4, x3, [x0]; cbnz w4, 1b",
        &[0xc85f_fc03, 0x8b01_0063, 0xc804_fc03, 0x35ff_ffa4],
    ),
    (
        "1: ldr x3, [x0]; mov x4, x3; add x5, x3, x1; casal x4, x5, [x0]; cmp x4, x3; b.ne 1b",
        &[
            0xf940_0003,
            0xaa03_03e4,
            0x8b01_0065,
            0xc8e4_fc05,
            0xeb03_009f,
            0x54ff_ff61,
        ],
    ),
];

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[test]
fn atomic_instructions_of_aarch64_lose_nothing() {
    for (text, words) in A64_ADDS {
        for other in [add, add_by_exchange] {
            let done = together(&bytes(words), a64_state, |_| 0, other);
            assert_eq!(done.word, done.interpreted + done.native, "{text}");
        }
    }
}

#[test]
fn swaps_of_aarch64_take_everything_once() {
    // swpal xzr, x2, [x0]
    let code = bytes(&[0xf8ff_8002]);
    let done = together(&code, a64_state, |s| s.x[2], add);
    assert_eq!(done.word + done.sum, done.native);
}

/// What shows that the tests above can fail: an addition that is not locked loses changes.
#[test]
fn an_addition_that_is_not_locked_is_not_one_step() {
    // incq (%rdi), while the other thread changes the word between its load and its store.
    struct Between<'a>(Shared<'a>, AtomicU32);
    impl Memory for Between<'_> {
        fn fetch(&mut self, va: u64, bytes: &mut [u8]) -> Result<usize, Fault> {
            self.0.fetch(va, bytes)
        }
        fn load<const N: usize>(&mut self, va: u64) -> Result<[u8; N], Fault> {
            let found = self.0.load(va);
            if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
                add(self.0.word);
            }
            found
        }
        fn store<const N: usize>(&mut self, va: u64, bytes: [u8; N]) -> Result<(), Fault> {
            self.0.store(va, bytes)
        }
        fn compare_exchange(
            &mut self,
            va: u64,
            width: Width,
            expected: u128,
            new: u128,
        ) -> Result<u128, Fault> {
            self.0.compare_exchange(va, width, expected, new)
        }
    }
    let run = |code: &[u8]| {
        let word = AtomicU64::new(0);
        let mut memory = Between(Shared { code, word: &word }, AtomicU32::new(0));
        let stepped = x86_state().step(&mut memory);
        assert_eq!(stepped, Ok(Event::Continue));
        word.load(Ordering::SeqCst)
    };
    assert_eq!(run(&[0x48, 0xff, 0x07]), 1);
    assert_eq!(run(&[0xf0, 0x48, 0xff, 0x07]), 2);
}
