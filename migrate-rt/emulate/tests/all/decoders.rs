//! Random code: what is executed is what other decoders read there, too.
//!
//! The interpreters' decoders are held against iced-x86 and disarm64, which know nothing of them. Code
//! that those call invalid, or that is of an extension that is not covered, must be refused; what is
//! executed has their length, touches memory in their width and where they say, and changes no register
//! that they do not name.

use crate::support;

use disarm64::{InsnOpcode, decoder};
use disarm64_defn::{InsnClass as Class, InsnFeatureSet as Feature};
use dyad_emulate::{Access, Cpu, End, Event, Fault, FaultKind, Memory, Refusal, Width, a64, x86};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register};
use support::Random;

const PC: u64 = 0x4100_0000;

/// The code at [`PC`]; zeros everywhere else. Data accesses are noted.
struct Watched<'a> {
    code: &'a [u8],
    accesses: Vec<(u64, usize)>,
}

impl Watched<'_> {
    fn note(&mut self, va: u64, len: usize) {
        self.accesses.push((va, len));
    }
}

impl Memory for Watched<'_> {
    fn fetch(&mut self, va: u64, bytes: &mut [u8]) -> Result<usize, Fault> {
        let code = self.code.get(va.wrapping_sub(PC) as usize..);
        let Some(code) = code.filter(|code| !code.is_empty()) else {
            return Err(Fault {
                va,
                access: Access::Fetch,
                kind: FaultKind::Unmapped,
            });
        };
        let len = code.len().min(bytes.len());
        bytes[..len].copy_from_slice(&code[..len]);
        Ok(len)
    }

    fn load<const N: usize>(&mut self, va: u64) -> Result<[u8; N], Fault> {
        self.note(va, N);
        Ok([0; N])
    }

    fn store<const N: usize>(&mut self, va: u64, _: [u8; N]) -> Result<(), Fault> {
        self.note(va, N);
        Ok(())
    }

    fn compare_exchange(&mut self, va: u64, w: Width, old: u128, _: u128) -> Result<u128, Fault> {
        self.note(va, w.bytes() as usize);
        Ok(old)
    }
}

/// Memory whose data accesses fail after a few; what the others would have written is noted.
struct Failing<'a> {
    code: &'a [u8],
    left: u64,
    stores: u64,
}

impl Failing<'_> {
    fn access(&mut self, va: u64, access: Access) -> Result<(), Fault> {
        self.left = self.left.checked_sub(1).ok_or(Fault {
            va,
            access,
            kind: FaultKind::Unmapped,
        })?;
        Ok(())
    }
}

impl Memory for Failing<'_> {
    fn fetch(&mut self, _: u64, bytes: &mut [u8]) -> Result<usize, Fault> {
        let len = self.code.len().min(bytes.len());
        bytes[..len].copy_from_slice(&self.code[..len]);
        Ok(len)
    }

    fn load<const N: usize>(&mut self, va: u64) -> Result<[u8; N], Fault> {
        self.access(va, Access::Load)?;
        Ok([1; N])
    }

    fn store<const N: usize>(&mut self, va: u64, _: [u8; N]) -> Result<(), Fault> {
        self.access(va, Access::Store)?;
        self.stores += 1;
        Ok(())
    }

    fn compare_exchange(&mut self, va: u64, _: Width, old: u128, _: u128) -> Result<u128, Fault> {
        self.access(va, Access::Update)?;
        self.stores += 1;
        Ok(old)
    }
}

/// Whatever an instruction is refused for, after whichever of its accesses: nothing has been written,
/// and all registers are as they were.
fn refusals_change_nothing<C: Cpu + Clone + PartialEq + std::fmt::Debug>(
    name: &str,
    state: impl Fn(&mut Random) -> C,
    code: impl Fn(&mut Random) -> [u8; 16],
) {
    let mut random = Random::new(name, 1);
    let mut faults = 0;
    for _ in 0..cases() {
        let code = code(&mut random);
        let before = state(&mut random);
        let mut after = before.clone();
        let left = random.below(4);
        let new = || Failing {
            code: &code,
            left,
            stores: 0,
        };
        let (mut memory, mut again) = (new(), new());
        let mut kept = before.clone();
        let run = kept.run(&mut again, &mut C::Cache::default(), |_| false, 1);
        if let End::Refused(refusal) = run.end {
            assert!(kept == before, "{name}: {code:02x?} {refusal:?}");
            assert_eq!(again.stores, 0, "{name}: {code:02x?} {refusal:?}");
        }
        if let Err(refusal) = after.step(&mut memory) {
            faults += u64::from(matches!(refusal, Refusal::Fault { .. }));
            assert!(after == before, "{name}: {code:02x?} {refusal:?}");
            assert_eq!(memory.stores, 0, "{name}: {code:02x?} {refusal:?}");
        }
    }
    assert!(faults > cases() / 200, "{name}: {faults} faults only");
}

fn x86_state(random: &mut Random) -> x86::State {
    let mut state = x86::State {
        rip: PC,
        ..x86::State::default()
    };
    for gpr in &mut state.gpr {
        // Aligned, so that moves that have to be are not refused each time.
        *gpr = random.next() & 0x7fff_ffff_fff0;
    }
    state.fs_base = 0x1_0000_0000;
    state
}

fn a64_state(random: &mut Random) -> a64::State {
    let mut state = a64::State {
        pc: PC,
        ..a64::State::default()
    };
    for x in &mut state.x {
        *x = random.next() & 0x7fff_ffff_fff0;
    }
    state.sp = 0x7000_0000_0000;
    state
}

#[test]
fn refused_x86_64_code_changes_nothing() {
    refusals_change_nothing("x86-64", x86_state, x86_code);
}

#[test]
fn refused_aarch64_code_changes_nothing() {
    refusals_change_nothing("AArch64", a64_state, |random| {
        let mut code = [0; 16];
        // Half of them from the group of loads and stores.
        let word = match random.below(2) {
            0 => random.next() as u32,
            _ => random.next() as u32 & !(5 << 25) | 1 << 27,
        };
        code[..4].copy_from_slice(&word.to_le_bytes());
        code
    });
}

fn cases() -> u64 {
    dyad_tier::size(1_000_000, 4_000_000, 20_000_000)
}

const GENERAL: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Bytes that often are an instruction: prefixes of ones that matter, an opcode, anything.
fn x86_code(random: &mut Random) -> [u8; 16] {
    let mut code = [0u8; 16];
    for byte in &mut code {
        *byte = random.next() as u8;
    }
    let mut at = 0;
    for prefix in [0x66, 0xf2, 0xf3, 0xf0, 0x64, 0x67, 0x2e] {
        if random.below(12) == 0 {
            code[at] = prefix;
            at += 1;
        }
    }
    if random.below(2) == 0 {
        code[at] = 0x40 | random.next() as u8 & 15;
        at += 1;
    }
    if random.below(2) == 0 {
        code[at] = 0x0f;
    }
    code
}

fn written(info: &iced_x86::InstructionInfo, register: Register) -> bool {
    info.used_registers().iter().any(|u| {
        let writes = matches!(
            u.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        writes && u.register().full_register() == register
    })
}

/// The bytes that iced-x86 says are used, of the registers before.
fn used(info: &iced_x86::InstructionInfo, before: &x86::State) -> Vec<(u64, u64)> {
    let value = |register: Register| match register {
        Register::FS => before.fs_base,
        r if r.is_segment_register() => 0,
        Register::RIP => 0,
        r => {
            let full = GENERAL.iter().position(|&g| g == r.full_register());
            let value = full.map_or(0, |n| before.gpr[n]);
            match r.size() {
                4 => value & 0xffff_ffff,
                _ => value,
            }
        }
    };
    info.used_memory()
        .iter()
        .filter_map(|m| {
            let va = m.virtual_address(0, |r, _, _| Some(value(r)))?;
            Some((va, m.memory_size().size() as u64))
        })
        .collect()
}

#[test]
fn x86_64_code_is_read_as_iced_reads_it() {
    let mut random = Random::new("x86 decoders", 0);
    let mut factory = InstructionInfoFactory::new();
    let (mut executed, mut unlike) = (0u64, String::new());
    for _ in 0..cases() {
        let code = x86_code(&mut random);
        let before = x86_state(&mut random);
        let mut after = before.clone();
        let mut memory = Watched {
            code: &code,
            accesses: Vec::new(),
        };
        let outcome = after.step(&mut memory);
        let mut again = Watched {
            code: &code,
            accesses: Vec::new(),
        };
        support::same_when_kept(&before, &mut again, &after, outcome);
        let event = match outcome {
            Err(_) => {
                assert!(
                    after == before,
                    "{code:02x?} was refused and changed something"
                );
                continue;
            }
            Ok(event) => event,
        };
        executed += 1;
        let raw = Decoder::with_ip(64, &code, PC, DecoderOptions::NONE).decode();
        let mut wrong = |what: &str| {
            if unlike.len() < 2000 {
                unlike += &format!("{code:02x?} ({:?}): {what}\n", raw.code());
            }
        };
        if raw.is_invalid() {
            wrong("invalid, but executed");
            continue;
        }
        if x86::length(&code) != Some(raw.len()) {
            wrong("another length");
            continue;
        }
        let straight = raw.flow_control() == iced_x86::FlowControl::Next;
        let repeats = raw.has_rep_prefix() || raw.has_repne_prefix();
        if straight && event == Event::Continue && !repeats && after.rip != raw.next_ip() {
            wrong("goes on elsewhere");
        }
        if !straight && matches!(event, Event::Call { .. }) {
            let calls = matches!(
                raw.flow_control(),
                iced_x86::FlowControl::Call | iced_x86::FlowControl::IndirectCall
            );
            if !calls {
                wrong("is no call");
            }
        }
        let info = factory.info(&raw);
        for (n, register) in GENERAL.into_iter().enumerate() {
            if after.gpr[n] != before.gpr[n] && !written(info, register) {
                wrong(&format!("changes {register:?}"));
            }
        }
        for n in 0..16 {
            let register = Register::XMM0 + n as u32;
            let full = register.full_register();
            if after.xmm[n] != before.xmm[n] && !written(info, full) {
                wrong(&format!("changes {register:?}"));
            }
        }
        if !repeats {
            let places = used(info, &before);
            for &(va, len) in &memory.accesses {
                let within = places.iter().any(|&(start, size)| {
                    va.wrapping_sub(start) <= size
                        && va.wrapping_sub(start).wrapping_add(len as u64) <= size
                });
                // A bit of a string of bits: iced says where the string starts.
                let bits = matches!(
                    raw.mnemonic(),
                    iced_x86::Mnemonic::Bt
                        | iced_x86::Mnemonic::Bts
                        | iced_x86::Mnemonic::Btr
                        | iced_x86::Mnemonic::Btc
                );
                if !within && !bits {
                    wrong(&format!("uses {len} bytes at {va:#x} and not {places:x?}"));
                }
            }
        }
    }
    assert!(unlike.is_empty(), "{unlike}");
    assert!(executed > cases() / 20, "{executed} instructions only");
}

#[test]
fn aarch64_code_is_read_as_disarm64_reads_it() {
    let mut random = Random::new("a64 decoders", 0);
    let (mut executed, mut unlike) = (0u64, String::new());
    for _ in 0..cases() {
        let word = random.next() as u32;
        let code = word.to_le_bytes();
        let before = a64_state(&mut random);
        let mut after = before.clone();
        let mut memory = Watched {
            code: &code,
            accesses: Vec::new(),
        };
        let outcome = after.step(&mut memory);
        let mut again = Watched {
            code: &code,
            accesses: Vec::new(),
        };
        support::same_when_kept(&before, &mut again, &after, outcome);
        let event = match outcome {
            Err(Refusal::Unknown { .. } | Refusal::Fault { .. } | Refusal::Unsupported { .. }) => {
                assert!(
                    after == before,
                    "{word:#010x} was refused and changed something"
                );
                continue;
            }
            Ok(event) => event,
        };
        executed += 1;
        let mut wrong = |what: &str| {
            if unlike.len() < 2000 {
                unlike += &format!("{word:#010x}: {what}\n");
            }
        };
        let Some(op) = decoder::decode(word) else {
            wrong("invalid, but executed");
            continue;
        };
        let definition = op.definition();
        let (class, name) = (definition.class, definition.mnemonic);
        let covered = matches!(
            definition.feature_set,
            Feature::V8 | Feature::FP | Feature::SIMD | Feature::LSE
        );
        // disarm64 takes some of these for conversions of half precision, which are those with 001x in
        // the upper bits of the shift.
        let shifts = matches!(class, Class::ASIMDSHF | Class::ASISDSHF) && word >> 21 & 3 != 0;
        let mistaken = definition.feature_set == Feature::SIMD_F16 && shifts;
        if !covered && !mistaken {
            wrong(&format!(
                "{name} is of another extension: {:?}",
                definition.feature_set
            ));
        }
        let branches = matches!(
            class,
            Class::BRANCH_IMM
                | Class::BRANCH_REG
                | Class::CONDBRANCH
                | Class::COMPBRANCH
                | Class::TESTBRANCH
        );
        if !branches && event == Event::Continue && after.pc != PC + 4 {
            wrong(&format!("{name} goes on elsewhere"));
        }
        match event {
            Event::Call { back, .. } if back != PC + 4 || !matches!(name, "bl" | "blr") => {
                wrong(&format!("{name} is no call"));
            }
            Event::Return if name != "ret" => wrong(&format!("{name} is no return")),
            Event::SystemCall if name != "svc" => wrong(&format!("{name} is no system call")),
            _ => {}
        }
        let loads = name.starts_with("ld") || name.starts_with("st");
        let touches = loads || name.starts_with("cas") || name.starts_with("swp");
        if !touches && !memory.accesses.is_empty() {
            wrong(&format!("{name} uses memory"));
        }
        // Whatever writes vector registers only leaves the others alone, and the other way round.
        let integer = matches!(
            class,
            Class::ADDSUB_IMM
                | Class::ADDSUB_EXT
                | Class::ADDSUB_SHIFT
                | Class::ADDSUB_CARRY
                | Class::LOG_IMM
                | Class::LOG_SHIFT
                | Class::MOVEWIDE
                | Class::BITFIELD
                | Class::EXTRACT
                | Class::CONDSEL
                | Class::DP_1SRC
                | Class::DP_2SRC
                | Class::DP_3SRC
        );
        let changed: Vec<usize> = (0..31).filter(|&n| after.x[n] != before.x[n]).collect();
        let rd = (word & 31) as usize;
        if integer && (changed.iter().any(|&n| n != rd) || after.v != before.v) {
            wrong(&format!("{name} changes {changed:?}"));
        }
        let vector = matches!(
            class,
            Class::ASIMDSAME | Class::ASIMDMISC | Class::ASIMDSHF | Class::ASIMDPERM
        );
        let others = (0..32).any(|n| n != rd && after.v[n] != before.v[n]);
        if vector && (!changed.is_empty() || others) {
            wrong(&format!("{name} changes more than its destination"));
        }
    }
    assert!(unlike.is_empty(), "{unlike}");
    assert!(executed > cases() / 20, "{executed} instructions only");
}
