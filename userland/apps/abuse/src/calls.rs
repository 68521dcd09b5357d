//! System calls with arguments from a generator, and what they must return.

#![allow(unsafe_code)]

use dyad::prelude::*;
use dyad::sys::raw::{SyscallReturn, call_raw};
use dyad::{sys, system};
use dyad_abi::syscall::Syscall;
use dyad_abi::user::{
    HEAP_BASE, HEAP_END, MAX_REPORT_DETAIL, MAX_REPORT_NAME, PAGE_SIZE, ReportArgs, USER_END,
    USER_MIN,
};

/// Most wrong results that are kept for people.
const KEPT: usize = 10;
/// Most regions held at a time.
const HELD: usize = 12;
/// Bytes around what the kernel may write, which must not change.
const MARGIN: usize = 64;
const MARK: u8 = 0xa5;
/// Constant data of the program: may be read, not written.
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

pub struct Abuser {
    random: u64,
    /// What the kernel may write to, with margins.
    buffer: Vec<u8>,
    regions: Vec<(u64, u64)>,
    /// An address that was mapped once and never will be again.
    hole: u64,
    args: u64,
    nodes: u64,
    refused: u64,
    wrong: Wrong,
}

fn raw(op: u64, args: [u64; 5]) -> SyscallReturn {
    // SAFETY: 1. Addresses that the kernel may write to are those of the buffer, which is only
    // read afterwards; 2. memory that is taken away was mapped by this module for that purpose.
    unsafe { call_raw(op, args) }
}

impl Abuser {
    pub fn new(seed: u64) -> Result<Abuser> {
        let one = sys::map_anon(PAGE_SIZE)?;
        let hole = one.as_ptr() as u64;
        // SAFETY: 1. Just mapped, and used by nobody.
        unsafe { sys::unmap(one, PAGE_SIZE)? };
        Ok(Abuser {
            random: seed,
            buffer: vec![MARK; 2 * PAGE_SIZE as usize + 2 * MARGIN],
            regions: Vec::new(),
            hole,
            args: sys::args(&mut [])? as u64,
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

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick(&mut self, list: &[u64]) -> u64 {
        list[self.below(list.len() as u64) as usize]
    }

    /// An address at which nothing may be read or written.
    fn bad_address(&mut self) -> u64 {
        let random = self.next() | 1 << 63;
        let hole = self.hole;
        let stack = &raw const random as u64;
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

    /// A length, mostly an odd one.
    fn length(&mut self) -> u64 {
        let random = self.next();
        self.pick(&[
            1,
            2,
            7,
            255,
            256,
            PAGE_SIZE - 1,
            PAGE_SIZE,
            PAGE_SIZE + 1,
            1 << 32,
            1 << 47,
            1 << 63,
            u64::MAX - 4095,
            u64::MAX,
            random | 1,
        ])
    }

    fn good(&mut self) -> u64 {
        let offset = self.below(PAGE_SIZE);
        self.buffer.as_ptr() as u64 + MARGIN as u64 + offset
    }

    /// Makes one call.
    pub fn call(&mut self) {
        use Syscall::*;
        use sys::Error::*;
        let fail = Must::Fail;
        let (op, args, must) = match self.below(24) {
            0 => (Null as u64, [self.next(); 5], Must::Give(0)),
            1 => (Now as u64, [self.next(); 5], Must::Succeed),
            2 => (Where as u64, [self.next(); 5], Must::Succeed),
            3 => (Yield as u64, [self.next(); 5], Must::Give(0)),
            // In the past: a deadline in the future would be kept.
            4 => (
                SleepUntil as u64,
                [self.below(1000), 0, 0, 0, 0],
                Must::Give(0),
            ),
            5 | 6 => {
                let random = self.next();
                let op = self.pick(&[
                    Syscall::ALL.len() as u64,
                    99,
                    1 << 32,
                    (1 << 32) | Null as u64,
                    u64::MAX,
                    random | 1 << 40,
                ]);
                (op, [self.next(); 5], fail(BadSyscall))
            }
            7 => {
                let (to, random) = (self.nodes, self.next() | 1 << 20);
                let to = self.pick(&[to, 8, 255, 256, u64::MAX, random]);
                (Migrate as u64, [to, 0, 0, 0, 0], fail(NoSuchNode))
            }
            8 | 9 => (
                Write as u64,
                [self.bad_address(), self.length(), 0, 0, 0],
                fail(BadAddress),
            ),
            10 => {
                let args = [TEXT.as_ptr() as u64, self.length(), 0, 0, 0];
                match self.args {
                    0 => (Write as u64, [args[0], 0, 0, 0, 0], Must::Give(0)),
                    // May be read, not written.
                    _ => (Args as u64, args, fail(BadAddress)),
                }
            }
            11 => {
                let full = size_of::<dyad_abi::user::SysInfo>() as u64;
                let len = self.length().max(1);
                (
                    SysInfo as u64,
                    [self.good(), len, 0, 0, 0],
                    Must::Give(full),
                )
            }
            12 => (
                SysInfo as u64,
                [self.bad_address(), self.length(), 0, 0, 0],
                fail(BadAddress),
            ),
            13 => {
                let args = [self.good(), self.length(), 0, 0, 0];
                (Args as u64, args, Must::Give(self.args))
            }
            14 => {
                let args = [self.bad_address(), self.length(), 0, 0, 0];
                match self.args {
                    // Nothing is copied to anywhere.
                    0 => (Args as u64, args, Must::Give(0)),
                    _ => (Args as u64, args, fail(BadAddress)),
                }
            }
            15 => {
                let args = [TEXT.as_ptr() as u64, self.length(), 0, 0, 0];
                (SysInfo as u64, args, fail(BadAddress))
            }
            16 => (
                Report as u64,
                [self.bad_address(), 0, 0, 0, 0],
                fail(BadAddress),
            ),
            17 => return self.report(),
            18 => {
                let isa = self.pick(&[2, 3, 256, 1 << 32, u64::MAX]);
                (
                    Translate as u64,
                    [self.good(), isa, 0, 0, 0],
                    fail(BadArgument),
                )
            }
            19 => {
                let args = [self.bad_address(), self.below(2), 0, 0, 0];
                (Translate as u64, args, fail(BadAddress))
            }
            20 => {
                let odd = self.next() | 1;
                let len = self.pick(&[0, 1, 8, PAGE_SIZE - 1, PAGE_SIZE + 8, u64::MAX, odd]);
                (MapAnon as u64, [len, 0, 0, 0, 0], fail(BadArgument))
            }
            21 => {
                let room = HEAP_END - HEAP_BASE;
                let len = self.pick(&[room + PAGE_SIZE, 1 << 50, 1 << 63, u64::MAX - 4095]);
                (MapAnon as u64, [len, 0, 0, 0, 0], fail(TooLarge))
            }
            22 => return self.unmap_badly(),
            _ => return self.map_and_unmap(),
        };
        self.expect(op, args, must);
    }

    fn expect(&mut self, op: u64, args: [u64; 5], must: Must) -> u64 {
        let r = raw(op, args);
        let right = match &must {
            Must::Fail(e) => (r.status, r.value) == (e.code(), 0),
            Must::Give(v) => (r.status, r.value) == (0, *v),
            Must::Succeed => r.status == 0,
        };
        self.refused += u64::from(r.status != 0);
        if !right {
            let name = Syscall::from_number(op).map_or("unknown", Syscall::name);
            let want = match must {
                Must::Fail(e) => format!("{e:?}"),
                Must::Give(v) => format!("value {v:#x}"),
                Must::Succeed => "success".to_string(),
            };
            self.note(format!(
                "{name} ({op:#x}) {args:x?} on {}: status {} value {:#x}, must be {want}",
                isa(),
                r.status,
                r.value
            ));
        }
        let n = self.buffer.len();
        let whole = |part: &[u8]| part.iter().all(|&b| b == MARK);
        if !whole(&self.buffer[..MARGIN]) || !whole(&self.buffer[n - MARGIN..]) {
            self.note(format!("call {op} {args:x?} wrote beyond the buffer"));
            self.buffer.fill(MARK);
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
        let at = TEXT.as_ptr() as u64;
        let mut r = ReportArgs {
            kind: 1,
            value: 0,
            name: at,
            name_len: 8,
            detail: at,
            detail_len: 8,
        };
        let error = match self.below(6) {
            0 => {
                r.kind = self.next() | 2;
                BadArgument
            }
            1 => {
                r.name = self.bad_address();
                BadAddress
            }
            2 => {
                r.name_len = self.next() | (MAX_REPORT_NAME as u64 + 1).next_power_of_two();
                TooLarge
            }
            3 => {
                r.name_len = 0;
                BadArgument
            }
            4 => {
                r.detail = self.bad_address();
                BadAddress
            }
            _ => {
                r.detail_len = self.next() | (MAX_REPORT_DETAIL as u64 + 1).next_power_of_two();
                TooLarge
            }
        };
        let args = [&raw const r as u64, 0, 0, 0, 0];
        self.expect(Syscall::Report as u64, args, Must::Fail(error));
    }

    /// Takes away what is not a whole region of its own.
    fn unmap_badly(&mut self) {
        let (start, len) = match self.regions.first() {
            Some(&r) => r,
            None => return self.map_and_unmap(),
        };
        let args = match self.below(7) {
            0 => [start + 1, len],
            1 => [start, len + PAGE_SIZE],
            2 => [start + 8, len],
            3 => [self.hole, PAGE_SIZE],
            4 => [self.bad_address(), self.length()],
            5 => [TEXT.as_ptr() as u64 & !(PAGE_SIZE - 1), PAGE_SIZE],
            _ => [start, 0],
        };
        let must = Must::Fail(sys::Error::BadArgument);
        self.expect(Syscall::Unmap as u64, [args[0], args[1], 0, 0, 0], must);
    }

    /// Maps, checks that it is zero and writable, and takes it away some time later.
    fn map_and_unmap(&mut self) {
        if self.regions.len() >= HELD {
            let i = self.below(HELD as u64) as usize;
            let (start, len) = self.regions.swap_remove(i);
            let args = [start, len, 0, 0, 0];
            self.expect(Syscall::Unmap as u64, args, Must::Give(0));
            return;
        }
        // Most of a large region is never touched.
        let len = self.pick(&[1, 2, 3, 17, 1 << 20]) * PAGE_SIZE;
        let at = self.expect(Syscall::MapAnon as u64, [len, 0, 0, 0, 0], Must::Succeed);
        if at == 0 {
            return;
        }
        for word in [0, len - 8] {
            let p = (at + word) as *mut u64;
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

    /// Maps until the kernel has no place for another region; then gives everything back.
    pub fn run_out_of_regions(&mut self) {
        let mut full = false;
        for _ in 0..1000 {
            let r = raw(Syscall::MapAnon as u64, [PAGE_SIZE, 0, 0, 0, 0]);
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
            let args = [start, len, 0, 0, 0];
            self.expect(Syscall::Unmap as u64, args, Must::Give(0));
        }
    }
}
