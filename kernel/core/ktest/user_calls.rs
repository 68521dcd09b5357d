//! What user mode finds in its registers after system calls, in every way that the kernel can go
//! back. User code comes from the arch crate ([`UserProbe`]); its calls do not get into the kernel
//! proper: [`intercept`] answers them.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::user::PAGE_SIZE;
use dyad_pgtbl::{FrameSource, Leaf, Level, Perms, RemoteCpu};
use dyad_shm::superblock::ROOT_SLOTS;
use dyad_shm::{PhysAddr, PoolId};

use super::{Outcome, Stop, TestCtx, ensure, ktest};
use crate::syscall::slowpath::{ENTER, FastReturn};
use dyad_machine::Platform;
use dyad_machine::platform::{REG_WORDS, RegArea, UserFault};
use dyad_object::tables::Layout;

/// Words of the tables of code that uses floating-point registers: it shows them, fills them with
/// ones, loads from an address, makes the call, shows them again, and makes the call [`DONE`].
#[derive(Debug)]
pub struct FpWords;

impl FpWords {
    /// The address to load from, if it is not code that has been entered.
    pub const ADDRESS: u64 = 33;
    /// The control word to be set.
    pub const CONTROL: u64 = 34;
    /// First and last vector register, two words each, and the control word, as they were.
    pub const BEFORE: u64 = 64;
    /// The same after the call.
    pub const AFTER: u64 = 72;
}

/// Where the table of entered code is.
pub const FP_TABLE: u64 = 0x4200_0c00;

/// The call that ends the probe.
pub const DONE: u64 = 0xd << 32 | 0x7fff;

/// How calls are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Answer {
    /// At once, with a status and a value.
    AtOnce = 1,
    /// By the completed area, with a status and a value.
    Slowly = 2,
    /// By [`ENTER`].
    Enter = 3,
    /// By the area, set up as for `ENTER`.
    EnterSlowly = 4,
    /// As a fault is answered for which there is a handler: by [`Platform::enter_user`].
    Handler = 5,
}

pub(super) const CODE: u64 = 0x4100_0000;
pub(super) const DATA: u64 = 0x4200_0000;
/// Where the table is; the words below it are the stack.
pub(super) const TABLE: u64 = DATA + 0x400;
const OUT: u64 = 64;
pub(super) const FLAGS: u64 = 32;
const TP_WORD: u64 = 97;
const TP_MAGIC: u64 = 0x7070_1234_5678_7070;
const STATUS: u64 = 0x55;
const VALUE: u64 = 0x1234_5678_9abc_def0;
const BADGE: u64 = 0xbad9_e000_0000_0001;
const TOKEN: u64 = 0x70_6b01;

pub(super) static AREA: RegArea = RegArea([const { AtomicU64::new(0) }; REG_WORDS]);
static ANSWER: AtomicU64 = AtomicU64::new(0);
static ENTERED: AtomicU64 = AtomicU64::new(0);
/// Of the last call: word, arguments 0 to 4, 1 if the kernel had the flags it must have, 1 if the
/// completed area gave the same arguments.
static GOT: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Runs user code whose calls go into the kernel proper, all but [`DONE`].
pub(super) fn for_real(run: impl FnOnce()) {
    ANSWER.store(REAL, Ordering::Relaxed);
    run();
    ANSWER.store(0, Ordering::Relaxed);
}

/// In `ANSWER`: calls go into the kernel proper.
const REAL: u64 = 99;
/// In `ANSWER`: calls go into the kernel proper, and a fault is the end.
const FAULT: u64 = 98;

/// Of the last run: 1 if it has ended with a fault, where that was, and its [`FaultKind`].
static FAULTED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// A word of the area that [`Answer::Slowly`] changes before the thread goes on: 1 more than its number, and its value.
static RAISED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Runs user code until it faults: where.
pub(super) fn at_fault(run: impl FnOnce()) -> Result<u64, Stop> {
    fault_of(run).map(|(at, _)| at)
}

/// Runs user code until it faults: where, and how.
pub(super) fn fault_of(run: impl FnOnce()) -> Result<(u64, u64), Stop> {
    match ends(FAULT, run) {
        Some(fault) => Ok(fault),
        None => super::fail(format_args!("it has not faulted")),
    }
}

/// Runs user code whose calls get an answer. Value: where it has faulted and how, unless it has made the call [`DONE`].
pub(super) fn answered(answer: Answer, run: impl FnOnce()) -> Option<(u64, u64)> {
    ends(answer as u64, run)
}

/// Runs the probe. [`Answer::Slowly`] puts `value` into word `word` of its area before it goes on. Value: as of
/// [`answered`].
pub(super) fn raised((word, value): (usize, u64), run: impl FnOnce()) -> Option<(u64, u64)> {
    RAISED[1].store(value, Ordering::Relaxed);
    RAISED[0].store(word as u64 + 1, Ordering::Relaxed);
    let end = answered(Answer::Slowly, run);
    RAISED[0].store(0, Ordering::Relaxed);
    end
}

fn ends(answer: u64, run: impl FnOnce()) -> Option<(u64, u64)> {
    FAULTED[0].store(0, Ordering::Relaxed);
    ANSWER.store(answer, Ordering::Relaxed);
    run();
    ANSWER.store(0, Ordering::Relaxed);
    let [has, at, kind] = [0, 1, 2].map(|n: usize| FAULTED[n].load(Ordering::Relaxed));
    (has != 0).then_some((at, kind))
}

/// Whether the kernel had the flags that it must have when the last call was made.
pub(super) fn kernel_flags_were_right() -> bool {
    GOT[6].load(Ordering::Relaxed) == 1
}

/// A fault in user mode that the kernel cannot resolve. Does not return if user mode is that of a test, and the test is not
/// about what the kernel then does.
pub fn intercept_fault<P: Platform>(area: &RegArea, f: UserFault) {
    if !matches!(ANSWER.load(Ordering::Relaxed), 0 | REAL) {
        for (to, v) in FAULTED
            .iter()
            .zip([1, P::user_pc_fp(area).0, f.kind as u64])
        {
            to.store(v, Ordering::Relaxed);
        }
        P::leave_user();
    }
}

/// Whether user mode is that of a test: interrupts are then noted and nothing else.
pub fn runs() -> bool {
    ANSWER.load(Ordering::Relaxed) != 0
}

/// Page faults of the probe, and how many of them the kernel has taken with other flags than its own.
static FAULTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Notes a page fault of user mode.
pub fn note_fault<P: Platform>() {
    if runs() {
        FAULTS[0].fetch_add(1, Ordering::Relaxed);
        FAULTS[1].fetch_add((!P::kernel_flags_are_right()).into(), Ordering::Relaxed);
    }
}

/// Page faults of the probe since the last call, and how many of them the kernel has taken with other flags than its own.
pub fn faults() -> [u64; 2] {
    [0, 1].map(|n| FAULTS[n].swap(0, Ordering::Relaxed))
}

/// Answers a system call of the probe; `None` if no test runs.
pub fn intercept<P: Platform>(word: u64, args: [u64; 5]) -> Option<FastReturn> {
    let answer = ANSWER.load(Ordering::Relaxed);
    if answer == 0 {
        return None;
    }
    if word == DONE {
        P::leave_user();
    }
    if matches!(answer, REAL | FAULT) {
        return None;
    }
    GOT[0].store(word, Ordering::Relaxed);
    for (to, v) in GOT[1..].iter().zip(args) {
        to.store(v, Ordering::Relaxed);
    }
    GOT[6].store(P::kernel_flags_are_right().into(), Ordering::Relaxed);
    let area = P::current_area();
    let [a0, a1, a2, a3, _] = args;
    if answer == Answer::AtOnce as u64 {
        return Some(FastReturn {
            status: STATUS,
            value: VALUE,
        });
    }
    if answer == Answer::Slowly as u64 {
        P::complete_area(area, word, args);
        let [w, rest @ ..] = P::syscall_args(area);
        GOT[7].store(((w, rest) == (word, args)).into(), Ordering::Relaxed);
        P::set_result(area, STATUS, VALUE);
        if let Some(word) = RAISED[0].load(Ordering::Relaxed).checked_sub(1) {
            area.0[word as usize].store(RAISED[1].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        P::resume_user(area);
    }
    if answer == Answer::Handler as u64 {
        // The area has what the thread had.
        P::complete_area(area, word, args);
        let handler = CODE + P::user_probe().handler;
        P::enter_user(area, handler, [a0, a1, a2, a3, BADGE, TABLE]);
    }
    P::set_user_pc_sp(area, ENTERED.load(Ordering::Relaxed), TABLE);
    if answer == Answer::Enter as u64 {
        P::local().fast_token.set(TOKEN);
        return Some(FastReturn {
            status: ENTER,
            value: BADGE,
        });
    }
    if word == 0 {
        P::set_results(area, 0, [a0, a1, a2, a3]);
    } else {
        P::set_arguments(area, [a0, a1, a2, a3, BADGE, TOKEN]);
    }
    P::resume_user(area);
}

/// Runs the probe once on `area`.
pub(super) fn run<P: Platform>(pc: u64, sp: u64, tp: u64) {
    P::init_regs(&AREA, pc, sp, 0, tp);
    // As if left from an earlier call; must not come out again.
    for n in 0..P::user_probe().registers as u64 {
        P::write_register(&AREA, n, 0x57a1_e000 + n);
    }
    P::set_user_pc_sp(&AREA, pc, sp);
    P::set_timer(None);
    P::run_user(&AREA);
}

/// Frames at the end of this node's pool, which are in no other use while tests run; all zero again
/// afterwards.
pub(super) struct Room<'a, 'c> {
    cx: &'a TestCtx<'c>,
    start: PhysAddr,
    next: Cell<u64>,
}

/// Frames there are.
const ROOM: u64 = 16;

impl<'a, 'c> Room<'a, 'c> {
    pub(super) fn new(cx: &'a TestCtx<'c>) -> Result<Room<'a, 'c>, Stop> {
        let pool = PoolId::Local(cx.node.id());
        let usable = Layout::of(&cx.node.params, pool).usable;
        ensure!(
            usable.clone().count() as u64 > ROOM,
            "the pool is too small"
        );
        Ok(Room {
            cx,
            start: pool.base().add((usable.end - ROOM) * PAGE_SIZE),
            next: Cell::new(0),
        })
    }

    pub(super) fn take(&self) -> Result<PhysAddr, Stop> {
        self.alloc_table()
            .ok_or(Stop::Failed(super::Text::new(format_args!("no room"))))
    }
}

impl FrameSource for Room<'_, '_> {
    fn alloc_table(&self) -> Option<PhysAddr> {
        let n = self.next.get();
        self.next.set(n + 1);
        (n < ROOM).then(|| self.start.add(n * PAGE_SIZE))
    }
    fn free_table(&self, _: PhysAddr) {}
}

impl Drop for Room<'_, '_> {
    fn drop(&mut self) {
        for n in 0..self.next.get().min(ROOM) {
            let _ = self.cx.node.map.zero_frame(self.start.add(n * PAGE_SIZE));
        }
    }
}

/// An address space for the probe.
pub(super) struct Pages {
    pub(super) root: PhysAddr,
    pub(super) data: PhysAddr,
}

pub(super) fn map(cx: &TestCtx<'_>, room: &Room<'_, '_>) -> Result<Pages, Stop> {
    let probe = cx.machine.user_probe();
    let (root, code, data) = (room.take()?, room.take()?, room.take()?);
    for (slot, entry) in ROOT_SLOTS.iter().zip(cx.machine.root_entries()) {
        cx.node
            .map
            .word(root.add(*slot as u64 * 8))
            .store(entry, Ordering::Relaxed);
    }
    let table = RemoteCpu::new(cx.node.words, cx.machine.isa(), root);
    for (va, pa, perms) in [(CODE, code, Perms::EXECUTE), (DATA, data, Perms::WRITE)] {
        let leaf = Leaf {
            accessed: true,
            dirty: va == DATA,
            ..Leaf::user(pa, perms)
        };
        let done = table.map(va, leaf, Level::L1, room);
        ensure!(done.is_ok(), "{va:#x} cannot be mapped: {done:?}");
    }
    ensure!(
        cx.node.map.write_bytes(code, probe.code),
        "the code does not fit"
    );
    cx.machine.sync_code(code, PAGE_SIZE);
    Ok(Pages { root, data })
}

fn try_one(cx: &TestCtx<'_>, pages: &Pages, answer: Answer, word: u64) -> Outcome {
    let probe = cx.machine.user_probe();
    let at = |i: u64| cx.node.map.word(pages.data.add(0x400 + i * 8));
    let marked = |i: usize| 0xa5a5_0000_0000_0000 + ((i as u64) << 40) + 0x1111 * (i as u64 + 1);
    let [set, left] = probe.flags;
    cx.node
        .map
        .word(pages.data)
        .store(TP_MAGIC, Ordering::Relaxed);
    for i in 0..98 {
        at(i).store(0xdead_dead_dead_dead, Ordering::Relaxed);
    }
    for i in 0..probe.registers {
        at(i as u64).store(marked(i), Ordering::Relaxed);
    }
    at(probe.call[0] as u64).store(word, Ordering::Relaxed);
    at(FLAGS).store(set, Ordering::Relaxed);
    for w in &GOT {
        w.store(1, Ordering::Relaxed);
    }
    ENTERED.store(CODE + probe.entered, Ordering::Relaxed);
    ANSWER.store(answer as u64, Ordering::Relaxed);
    cx.machine.run_user(CODE, TABLE, DATA);
    ANSWER.store(0, Ordering::Relaxed);

    let what = |text| {
        Stop::Failed(super::Text::new(format_args!(
            "{text} ({answer:?}, {word:#x})"
        )))
    };
    let got = |i: usize| GOT[i].load(Ordering::Relaxed);
    let seen = |i: u64| at(OUT + i).load(Ordering::Relaxed);
    if got(6) != 1 {
        return Err(what("the kernel ran with flags of the user"));
    }
    if got(7) != 1 {
        return Err(what("the completed area has other arguments"));
    }
    // Invocations and their ends have four words.
    let count = if word >> 32 == 0 { 4 } else { 5 };
    for i in 0..=count {
        let want = if i == 0 { word } else { marked(probe.call[i]) };
        ensure!(got(i) == want, "word {i} of the call is {:#x}", got(i));
    }

    let entered = matches!(
        answer,
        Answer::Enter | Answer::EnterSlowly | Answer::Handler
    );
    let mut want = [0; 32];
    want[probe.sp] = TABLE;
    let args: [u64; 4] = core::array::from_fn(|i| marked(probe.call[1 + i]));
    if !entered {
        // Who invokes, or ends an invocation, keeps nothing.
        for &i in probe.preserved.iter().filter(|_| word >> 32 != 0) {
            want[i] = marked(i);
        }
        want[probe.results[0]] = STATUS;
        want[probe.results[1]] = VALUE;
    } else if word == 0 {
        for (&i, v) in probe.results[1..].iter().zip(args) {
            want[i] = v;
        }
    } else {
        let last = match answer {
            Answer::Handler => TABLE,
            _ => TOKEN,
        };
        for (&i, v) in probe
            .arguments
            .iter()
            .zip(args.into_iter().chain([BADGE, last]))
        {
            want[i] = v;
        }
    }
    let spent = answer == Answer::AtOnce || (answer == Answer::Enter && word == 0);
    for (i, &want) in want.iter().enumerate().take(probe.registers) {
        if spent && probe.spent.contains(&i) {
            continue;
        }
        let is = seen(i as u64);
        ensure!(
            is == want,
            "register {i} is {is:#x}, must be {want:#x} ({answer:?}, call {word:#x})"
        );
    }
    let flags = match answer {
        Answer::AtOnce => set,
        Answer::Slowly => left,
        _ => probe.no_flags,
    };
    let is = seen(32);
    ensure!(
        is == flags,
        "flags are {is:#x}, must be {flags:#x} ({answer:?}, call {word:#x})"
    );
    let tp = at(TP_WORD).load(Ordering::Relaxed);
    ensure!(
        !entered || tp == TP_MAGIC,
        "the thread pointer is the caller's ({answer:?})"
    );
    Ok(None)
}

#[ktest]
fn system_calls_show_nothing_and_keep_what_they_must(cx: &TestCtx<'_>) -> Outcome {
    let room = Room::new(cx)?;
    let pages = map(cx, &room)?;
    cx.machine.switch_root(Some(pages.root));
    // Operation 3 of capability 5; operation 0 of it; the end of an invocation.
    let mut outcome = Ok(None);
    for word in [3 << 32 | 5, 5, 0] {
        for answer in [
            Answer::AtOnce,
            Answer::Slowly,
            Answer::Enter,
            Answer::EnterSlowly,
        ] {
            if outcome.is_ok() && !(word >> 32 != 0 && answer == Answer::Enter) {
                outcome = try_one(cx, &pages, answer, word);
            }
        }
    }
    if outcome.is_ok() {
        outcome = try_one(cx, &pages, Answer::Handler, 3 << 32 | 5);
    }
    cx.machine.switch_root(None);
    outcome
}

#[ktest]
fn registers_of_areas_are_found_by_number(cx: &TestCtx<'_>) -> Outcome {
    let probe = cx.machine.user_probe();
    let [pc, flags, tp] = [0, 1, 2].map(|i| (probe.registers + i) as u64);
    let (read, write) = (
        |n| cx.machine.read_register(&AREA, n),
        |n, v| cx.machine.write_register(&AREA, n, v),
    );
    for n in 0..=tp {
        ensure!(write(n, 0x1000 + n), "register {n} cannot be written");
    }
    for n in (0..=tp).filter(|&n| n != flags) {
        let is = read(n);
        ensure!(is == Some(0x1000 + n), "register {n} is {is:x?}");
    }
    for n in [probe.sp as u64, pc, tp] {
        for bad in [dyad_abi::user::USER_END, u64::MAX] {
            ensure!(
                write(n, bad) && read(n) == Some(0),
                "register {n} took {bad:#x}"
            );
        }
    }
    let [_, left] = probe.flags;
    write(flags, u64::MAX);
    let is = read(flags).unwrap_or(0);
    // All of the program's flags, none that would change what user mode may do.
    ensure!(
        is & left == left && is & probe.forbidden_flags == 0,
        "flags {is:#x}"
    );
    for n in [tp + 1, u64::MAX] {
        ensure!(read(n).is_none() && !write(n, 0), "there is a register {n}");
    }
    Ok(None)
}

#[ktest]
fn frames_are_zeroed_by_the_machine_and_nothing_else_is(cx: &TestCtx<'_>) -> Outcome {
    let room = Room::new(cx)?;
    let got = [room.take()?, room.take()?, room.take()?];
    let mut outcome = Ok(None);
    for pa in got {
        for other in got {
            for w in 0..PAGE_SIZE / 8 {
                cx.node
                    .map
                    .word(other.add(w * 8))
                    .store(!w, Ordering::Relaxed);
            }
        }
        let done = cx.machine.zero_frame(pa);
        let wrong = got.iter().find_map(|&other| {
            (0..PAGE_SIZE / 8).find_map(|w| {
                let is = cx.node.map.word(other.add(w * 8)).load(Ordering::Relaxed);
                let want = if other == pa { 0 } else { !w };
                (is != want).then_some((other.add(w * 8), is))
            })
        });
        if let (false, _) | (_, Some(_)) = (done, wrong) {
            outcome = Err(Stop::Failed(super::Text::new(format_args!(
                "{pa}: {done}, {wrong:x?}"
            ))));
        }
    }
    for bad in [PhysAddr(0), got[0].add(8), PhysAddr(u64::MAX - 4095)] {
        ensure!(!cx.machine.zero_frame(bad), "{bad} was zeroed");
    }
    outcome
}
