//! Calls with arguments from a generator, and what they must return.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance_mut;

use dyad::prelude::task::*;
use dyad::sys::cap::CapIndex;
use dyad::sys::raw::{self, SyscallReturn};
use dyad::{sys, system};
use dyad_abi::cap::{
    HardwareOp, LEAF_SLOTS, RETURN, ReceiveOp, SinvOp, SpaceOp, TABLE_SLOTS, TableAt, ThreadOp,
    call_word,
};
use dyad_abi::service::{CONSOLE_THREADS, ReportText, console, pager, process, slot};
use dyad_abi::user::{
    HEAP_BASE, HEAP_END, MAX_REPORT_DETAIL, MAX_REPORT_NAME, PAGE_SIZE, USER_END, USER_MIN,
};
use dyad_random::SplitMix64;

/// Most wrong results that are kept for people.
const KEPT: usize = 10;
/// Most regions held at a time.
const HELD: usize = 12;
/// Constant data of the program.
static TEXT: &[u8; 64] = b"constant data of the program, which the kernel must never change";

/// Results that were not what they must be.
#[derive(Default)]
pub struct Wrong {
    pub count: u64,
    pub lines: Vec<String>,
}

/// What a call must return.
enum Must {
    Fail(sys::Error),
    /// Succeed with this value.
    Give(u64),
    /// Succeed with any value.
    Succeed,
}

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Syscall,
    /// An invocation whose reply is a status and a value.
    Request,
}

/// A call: its first word, and those that follow.
#[derive(Clone, Copy, Debug)]
struct Call {
    way: Way,
    word: u64,
    args: [u64; 5],
}

const fn syscall(cap: CapIndex, operation: u32, args: [u64; 5]) -> Call {
    Call {
        way: Way::Syscall,
        word: call_word(cap, operation),
        args,
    }
}

const fn request(service: CapIndex, [a, b, c, d]: [u64; 4]) -> Call {
    Call {
        way: Way::Request,
        word: call_word(service, SinvOp::Invoke as u32),
        args: [a, b, c, d, 0],
    }
}

pub struct Abuser {
    random: SplitMix64,
    regions: Vec<(u64, u64)>,
    nodes: u64,
    refused: u64,
    wrong: Wrong,
}

fn make(call: Call) -> SyscallReturn {
    // Operation 0 is invoking, whatever the capability is: no registers are kept.
    let way = match call.word >> 32 {
        0 => Way::Request,
        _ => call.way,
    };
    match way {
        // SAFETY: 1. The program has no capability by which the kernel would write to its memory or
        // take any away.
        Way::Syscall => unsafe { raw::call_raw(call.word, call.args) },
        Way::Request => {
            let [a, b, c, d, _] = call.args;
            raw::request(call.word, [a, b, c, d])
        }
    }
}

impl Abuser {
    pub fn new(seed: u64) -> Result<Abuser> {
        Ok(Abuser {
            random: SplitMix64(seed),
            regions: Vec::new(),
            nodes: system()?.nodes().count() as u64,
            refused: 0,
            wrong: Wrong::default(),
        })
    }

    pub fn refused(&self) -> u64 {
        self.refused
    }

    pub fn wrong(&self) -> &Wrong {
        &self.wrong
    }

    fn next(&mut self) -> u64 {
        self.random.next()
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn pick(&mut self, list: &[u64]) -> u64 {
        list[self.below(list.len() as u64) as usize]
    }

    /// An address at which nothing is mapped.
    fn bad_address(&mut self) -> u64 {
        let random = self.next() | 1 << 63;
        let stack = &raw const random as u64;
        // The pager begins at the other end.
        let hole = HEAP_END - 1024 * PAGE_SIZE;
        let list = [
            0,
            1,
            USER_MIN - 1,
            hole,
            hole + PAGE_SIZE - 1,
            HEAP_END - 1,
            USER_END - 1,
            USER_END,
            0xffff_8000_0000_0000,
            0xffff_8004_0000_0000,
            0xffff_ffff_8000_0000,
            u64::MAX,
            u64::MAX - 7,
            stack | 1 << 62,
            random,
        ];
        self.pick(&list)
    }

    /// A slot of the program's table in which there is nothing.
    fn empty_slot(&mut self) -> CapIndex {
        let beyond = u64::from(slot::FIRST_FREE.get());
        let end = u64::from(slot::END_FREE.get());
        let far = beyond + self.below(end - beyond);
        // Thread 0 has its capability elsewhere.
        let unused = end + u64::from(LEAF_SLOTS);
        CapIndex(self.pick(&[0, beyond, end - 1, unused, far]) as u32)
    }

    fn hardware(&mut self) -> CapIndex {
        let node = self.below(self.nodes);
        slot::hardware(NodeId::new(node).unwrap_or(dyad::node()))
    }

    /// Makes one call.
    pub fn call(&mut self) {
        use sys::Error::*;
        let fail = Must::Fail;
        let noise = self.noise();
        let (call, must) = match self.below(24) {
            0 => {
                let call = syscall(self.hardware(), HardwareOp::Now as u32, noise);
                (call, Must::Succeed)
            }
            1 => {
                let call = syscall(self.hardware(), HardwareOp::Where as u32, noise);
                (call, Must::Succeed)
            }
            2 => {
                let call = syscall(slot::THREAD, ThreadOp::Yield as u32, noise);
                (call, Must::Give(0))
            }
            // In the past: a deadline in the future would be kept.
            3 => {
                let args = [0, 1 + self.below(1000), 0, 0, 0];
                let call = syscall(slot::ENDPOINT, ReceiveOp::Receive as u32, args);
                (call, Must::Give(0))
            }
            4 => {
                let random = self.next() | 64;
                let index = self.pick(&[64, 255, 1 << 32, u64::MAX, random]);
                let args = [index, 1, 0, 0, 0];
                let call = syscall(slot::ENDPOINT, ReceiveOp::Receive as u32, args);
                (call, fail(BadArgument))
            }
            // There is no invocation to return from. Registers are lost as in an invocation.
            5 => {
                let call = Call {
                    way: Way::Request,
                    word: RETURN,
                    args: noise,
                };
                (call, fail(TooDeep))
            }
            6 => {
                let random = self.next();
                let operation = self.pick(&[32, 99, 255, 1 << 8, 1 << 20, u64::MAX, random | 32]);
                let cap = self.pick(&[slot::THREAD.get().into(), slot::CONSOLE.get().into(), 999]);
                let call = Call {
                    way: Way::Syscall,
                    word: operation << 32 | cap,
                    args: noise,
                };
                (call, fail(BadSyscall))
            }
            7 => {
                let operation = self.below(32) as u32;
                let cap = self.empty_slot();
                match call_word(cap, operation) {
                    // That would be a return.
                    RETURN => return,
                    _ => (syscall(cap, operation, noise), fail(NoCap)),
                }
            }
            8 => {
                let limit = u64::from(TABLE_SLOTS);
                let random = self.next() & 0xffff_ffff | limit;
                let cap = self.pick(&[limit, limit + 4, 0xffff_ffff, random]);
                let call = Call {
                    way: Way::Syscall,
                    word: self.below(32) << 32 | cap,
                    args: noise,
                };
                (call, fail(NoCap))
            }
            // What init may do with these, and programs may not.
            9 => {
                let operation = self.pick(&[0, 1, 2, 3, 5, 6, 20, 29]) as u32;
                (syscall(slot::THREAD, operation, noise), fail(Denied))
            }
            10 => {
                let operation = match self.below(14) {
                    n if n == SpaceOp::Translate as u64 => 29,
                    n => n,
                };
                (syscall(slot::SPACE, operation as u32, noise), fail(Denied))
            }
            11 => {
                let operation = self.pick(&[0, 1, 2, 4, 5, 6, 7, 11, 29]) as u32;
                (syscall(self.hardware(), operation, noise), fail(Denied))
            }
            12 => {
                let operation = 1 + self.below(29) as u32;
                let cap = CapIndex(self.pick(&[33, 34, 35]) as u32);
                (syscall(cap, operation, noise), fail(Denied))
            }
            13 => {
                let (to, random) = (self.nodes, self.next() | 1 << 20);
                let to = self.pick(&[to, 8, 255, 256, u64::MAX, random]);
                let migrate = self.below(2) == 0;
                let args = [to, 0, 0, 0, 0];
                let call = match migrate {
                    true => syscall(slot::THREAD, ThreadOp::Migrate as u32, args),
                    false => syscall(self.hardware(), HardwareOp::NodeState as u32, args),
                };
                (call, fail(NoSuchNode))
            }
            14 => {
                let at = self.pick(&[2, 3, 256 + 2, 1 << 32, u64::MAX, 0, 5 << 8]);
                let args = [at, TEXT.as_ptr() as u64, 0, 0, 0];
                let call = syscall(slot::SPACE, SpaceOp::Translate as u32, args);
                (call, fail(BadArgument))
            }
            15 => {
                let at = TableAt {
                    isa: Isa::ALL[self.below(2) as usize],
                    level: 1,
                };
                let args = [at.bits(), self.bad_address(), 0, 0, 0];
                let call = syscall(slot::SPACE, SpaceOp::Translate as u32, args);
                (call, fail(BadAddress))
            }
            16 => {
                let end = CONSOLE_THREADS * PAGE_SIZE;
                let random = self.next() | end;
                let offset = self.pick(&[end, end + 1, 1 << 32, u64::MAX - 4095, u64::MAX, random]);
                let what = self.pick(&[console::WRITE, console::REPORT]);
                let call = request(slot::CONSOLE, [what, offset, 1 + self.below(4096), 0]);
                (call, fail(BadArgument))
            }
            17 => {
                let random = self.next() | 1 << 13;
                let len = self.pick(&[PAGE_SIZE + 1, 1 << 32, u64::MAX, random]);
                let call = request(slot::CONSOLE, [console::WRITE, 0, len, 0]);
                (call, fail(TooLarge))
            }
            18 => return self.report(),
            19 => {
                let services = [slot::CONSOLE, slot::PAGER, slot::PROCESS];
                let service = services[self.below(3) as usize];
                let random = self.next() | 1 << 40;
                // A low byte of 2 is a fault to the process service.
                let what = self.pick(&[0, 99, 1 << 32, u64::MAX, random & !0xff]);
                (
                    request(service, [what, noise[1], noise[2], 0]),
                    fail(BadArgument),
                )
            }
            // What is init's to say, and the pager's.
            20 => {
                let call = match self.below(3) {
                    0 => request(slot::PAGER, [pager::END, self.below(64), 0, 0]),
                    1 => request(slot::CONSOLE, [console::END, self.below(64), 0, 0]),
                    _ => request(slot::PROCESS, [process::FAULTED, noise[1], noise[2], 0]),
                };
                (call, fail(Denied))
            }
            21 => {
                let room = HEAP_END - HEAP_BASE;
                let (len, must) = match self.below(3) {
                    0 => (0, fail(BadArgument)),
                    _ => {
                        let len = [
                            room + PAGE_SIZE,
                            1 << 50,
                            1 << 63,
                            u64::MAX - 4095,
                            u64::MAX,
                        ];
                        (self.pick(&len), fail(TooLarge))
                    }
                };
                (request(slot::PAGER, [pager::MAP_ANON, len, 0, 0]), must)
            }
            22 => return self.unmap_badly(),
            _ => return self.map_and_unmap(),
        };
        self.expect(call, must);
    }

    /// Arguments that must not matter.
    fn noise(&mut self) -> [u64; 5] {
        core::array::from_fn(|_| match self.below(4) {
            0 => self.bad_address(),
            _ => self.next(),
        })
    }

    fn expect(&mut self, call: Call, must: Must) -> u64 {
        let r = make(call);
        let right = match &must {
            Must::Fail(e) => (r.status, r.value) == (e.code(), 0),
            Must::Give(v) => (r.status, r.value) == (0, *v),
            Must::Succeed => r.status == 0,
        };
        self.refused += u64::from(r.status != 0);
        if !right {
            let want = match must {
                Must::Fail(e) => format!("{e:?}"),
                Must::Give(v) => format!("value {v:#x}"),
                Must::Succeed => "success".to_string(),
            };
            self.note(format!(
                "{:?} {:#x} {:x?} on {}: status {} value {:#x}, must be {want}",
                call.way,
                call.word,
                call.args,
                isa(),
                r.status,
                r.value
            ));
        }
        r.value
    }

    fn note(&mut self, line: String) {
        self.wrong.count += 1;
        if self.wrong.lines.len() < KEPT {
            self.wrong.lines.push(line);
        }
    }

    /// A report one field of which is bad.
    fn report(&mut self) {
        use sys::Error::*;
        let mut r = ReportText {
            kind: 1,
            value: 0,
            name_len: 8,
            detail_len: 8,
            name: [b'a'; MAX_REPORT_NAME],
            detail: [b'b'; MAX_REPORT_DETAIL],
        };
        let error = match self.below(3) {
            0 => {
                r.kind = self.next() | 2;
                BadArgument
            }
            1 => {
                r.name_len = self.next() | (MAX_REPORT_NAME as u64 + 1).next_power_of_two();
                TooLarge
            }
            _ => {
                r.detail_len = self.next() | (MAX_REPORT_DETAIL as u64 + 1).next_power_of_two();
                TooLarge
            }
        };
        let page = with_exposed_provenance_mut::<ReportText>(raw::text_buffer() as usize);
        // SAFETY: 1. The first page of the buffer is this thread's, and larger than a report.
        // 2. Nothing is being written to the console.
        unsafe { page.write(r) };
        let call = request(slot::CONSOLE, [console::REPORT, 0, 0, 0]);
        self.expect(call, Must::Fail(error));
    }

    /// Takes away what is not a whole region of its own.
    fn unmap_badly(&mut self) {
        let (start, len) = match self.regions.first() {
            Some(&r) => r,
            None => return self.map_and_unmap(),
        };
        let [at, len] = match self.below(7) {
            0 => [start + 1, len],
            1 => [start, len + PAGE_SIZE],
            2 => [start + 8, len],
            3 => [HEAP_END - PAGE_SIZE, PAGE_SIZE],
            4 => [self.bad_address(), self.next() | 1],
            5 => [TEXT.as_ptr() as u64 & !(PAGE_SIZE - 1), PAGE_SIZE],
            _ => [start, 0],
        };
        let call = request(slot::PAGER, [pager::UNMAP, at, len, 0]);
        self.expect(call, Must::Fail(sys::Error::NotFound));
    }

    /// Maps, checks that it is zero and writable, and takes it away some time later.
    fn map_and_unmap(&mut self) {
        if self.regions.len() >= HELD {
            let i = self.below(HELD as u64) as usize;
            let (start, len) = self.regions.swap_remove(i);
            let call = request(slot::PAGER, [pager::UNMAP, start, len, 0]);
            self.expect(call, Must::Give(0));
            return;
        }
        // Most of a large region is never touched.
        let len = self.pick(&[1, 2, 3, 17, 1 << 14]) * PAGE_SIZE;
        let call = request(slot::PAGER, [pager::MAP_ANON, len, 0, 0]);
        let at = self.expect(call, Must::Succeed);
        if at == 0 {
            return;
        }
        for word in [0, len - 8] {
            let p = with_exposed_provenance_mut::<u64>((at + word) as usize);
            // SAFETY: 1. Just mapped, aligned, and used by nobody else.
            let old = unsafe { p.read_volatile() };
            // SAFETY: 1. As above.
            unsafe { p.write_volatile(at) };
            if old != 0 {
                self.note(format!("memory at {at:#x} is not zero but {old:#x}"));
            }
        }
        self.regions.push((at, len));
    }

    /// Maps until the pager has no place for another region; then gives everything back.
    pub fn run_out_of_regions(&mut self) {
        let mut full = false;
        for _ in 0..1000 {
            let r = make(request(slot::PAGER, [pager::MAP_ANON, PAGE_SIZE, 0, 0]));
            match r.status {
                0 => self.regions.push((r.value, PAGE_SIZE)),
                e => {
                    full = e == sys::Error::Full.code();
                    break;
                }
            }
        }
        if !full {
            self.note("the regions of an address space do not end with Full".to_string());
        }
        while let Some((start, len)) = self.regions.pop() {
            let call = request(slot::PAGER, [pager::UNMAP, start, len, 0]);
            self.expect(call, Must::Give(0));
        }
    }
}
