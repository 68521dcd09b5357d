//! Random functions, judged by the verifier and by a slow oracle.
//!
//! The oracle knows nothing of instructions. It runs the function's operations on all paths at once, by
//! keeping every state that can be reached before every operation, with a value being new, old or
//! none. The verifier sees machine code and keeps one state per instruction. Both have to say the same.

use super::fixture::Shape::Framed;
use super::fixture::{Case, Program, case};
use dyad_abi::Isa;
use migrate_rt::verify::{Kind, program};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Registers: two that calls destroy, one that carries arguments of spine functions and survives plain
/// calls, one that survives plain calls only.
const REGISTERS: [[&str; 4]; 2] = [["r8", "r9", "r12", "rbx"], ["x9", "x10", "x20", "x19"]];
const LOW: [[&str; 4]; 2] = [["r8d", "r9d", "r12d", "ebx"], ["w9", "w10", "w20", "w19"]];
const SLOTS: usize = 3;

/// An operation. Halves are of 4 bytes, the low one is 0.
#[derive(Clone, Copy, Debug)]
enum Op {
    Define(usize),
    Use(usize),
    UseLow(usize),
    Move(usize, usize),
    MoveLow(usize, usize),
    Store(usize, usize),
    StoreHalf(usize, usize, usize),
    Load(usize, usize),
    LoadHalf(usize, usize, usize),
    /// Adds a register to a slot in one instruction, where the ISA has that.
    AddTo(usize, usize),
    /// Adds a slot to a register in one instruction, where the ISA has that.
    AddFrom(usize, usize),
    Site,
    Plain,
    /// Goes on behind the operation of that index, modulo their number, or with the next.
    Branch(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let (r, s, h) = (0..4usize, 0..SLOTS, 0..2usize);
    prop_oneof![
        5 => r.clone().prop_map(Op::Define),
        3 => r.clone().prop_map(Op::Use),
        2 => r.clone().prop_map(Op::UseLow),
        2 => (r.clone(), r.clone()).prop_map(|(a, b)| Op::Move(a, b)),
        1 => (r.clone(), r.clone()).prop_map(|(a, b)| Op::MoveLow(a, b)),
        5 => (s.clone(), r.clone()).prop_map(|(s, r)| Op::Store(s, r)),
        3 => (s.clone(), h.clone(), r.clone()).prop_map(|(s, h, r)| Op::StoreHalf(s, h, r)),
        2 => (r.clone(), s.clone()).prop_map(|(r, s)| Op::Load(r, s)),
        1 => (r.clone(), s.clone(), h).prop_map(|(r, s, h)| Op::LoadHalf(r, s, h)),
        1 => (s.clone(), r.clone()).prop_map(|(s, r)| Op::AddTo(s, r)),
        1 => (r, s).prop_map(|(r, s)| Op::AddFrom(r, s)),
        2 => Just(Op::Site),
        1 => Just(Op::Plain),
        2 => (0..64usize).prop_map(Op::Branch),
    ]
}

/// What half a register, or half a slot, holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Half {
    new: bool,
    /// Of a register: it was copied while it was not new. Of a slot: it was stored since the site.
    marked: bool,
}

const NEW: Half = Half {
    new: true,
    marked: false,
};
const GONE: Half = Half {
    new: false,
    marked: false,
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    registers: [[Half; 2]; 4],
    slots: [[Half; 2]; SLOTS],
}

fn copied(half: Half) -> Half {
    Half {
        new: half.new,
        marked: !half.new,
    }
}

fn stored(half: Half) -> Half {
    Half {
        new: half.new,
        marked: true,
    }
}

/// What halves are if what is in others has been added to them: the low halves have to be new.
fn added([low, high]: [Half; 2], [other_low, other_high]: [Half; 2]) -> Option<[bool; 2]> {
    (low.new && other_low.new).then_some([true, high.new && other_high.new])
}

/// Whether a path breaks the rules.
fn breaks(isa: Isa, ops: &[Op]) -> bool {
    // Arguments are there at the entry; the last register is no argument.
    let entry = State {
        registers: [[NEW; 2], [NEW; 2], [NEW; 2], [GONE; 2]],
        slots: [[GONE; 2]; SLOTS],
    };
    let mut seen = BTreeSet::from([(0, entry.clone())]);
    let mut open = vec![(0, entry)];
    while let Some((at, mut state)) = open.pop() {
        let Some(op) = ops.get(at) else { continue };
        let mut next = vec![at + 1];
        let r = &mut state.registers;
        let s = &mut state.slots;
        // What callees take is not known here. So a low half that was copied has a meaning; an upper one may be what
        // was left above a narrower value.
        let passed = |registers: &[[Half; 2]]| {
            let marked = |[low, _]: &[Half; 2]| low.marked && !low.new;
            registers.iter().any(marked)
        };
        match *op {
            Op::Define(a) => r[a] = [NEW; 2],
            Op::Use(a) if !(r[a][0].new && r[a][1].new) => return true,
            Op::UseLow(a) if !r[a][0].new => return true,
            Op::Use(_) | Op::UseLow(_) => {}
            // The verifier takes a register for one value where all of it is copied.
            Op::Move(a, b) => {
                let new = r[b][0].new && r[b][1].new;
                r[a] = [copied(Half { new, ..GONE }); 2];
            }
            Op::MoveLow(a, b) => r[a] = [copied(r[b][0]), NEW],
            Op::Store(slot, a) => s[slot] = [stored(r[a][0]), stored(r[a][1])],
            Op::StoreHalf(slot, h, a) => s[slot][h] = stored(r[a][0]),
            Op::Load(_, slot) if !(s[slot][0].marked && s[slot][1].marked) => return true,
            Op::LoadHalf(_, slot, h) if !s[slot][h].marked => return true,
            Op::Load(a, slot) => r[a] = [copied(s[slot][0]), copied(s[slot][1])],
            Op::LoadHalf(a, slot, h) => r[a] = [copied(s[slot][h]), NEW],
            Op::AddTo(..) | Op::AddFrom(..) if isa == Isa::Aarch64 => {}
            Op::AddTo(slot, a) | Op::AddFrom(a, slot) => {
                let there = s[slot].iter().all(|half| half.marked);
                let Some(new) = added(r[a], s[slot]).filter(|_| there) else {
                    return true;
                };
                let halves = new.map(|new| Half { new, ..GONE });
                match op {
                    Op::AddTo(..) => s[slot] = halves.map(stored),
                    _ => r[a] = halves.map(copied),
                }
            }
            Op::Site => {
                if passed(&r[..3]) {
                    return true;
                }
                *r = [[GONE; 2]; 4];
                *s = [[GONE; 2]; SLOTS];
            }
            Op::Plain => {
                if passed(&r[..2]) {
                    return true;
                }
                r[0] = [GONE; 2];
                r[1] = [GONE; 2];
            }
            Op::Branch(to) => next.push(to % ops.len() + 1),
        }
        for to in next {
            if seen.insert((to, state.clone())) {
                open.push((to, state.clone()));
            }
        }
    }
    // What is in argument registers at the return is nobody's.
    false
}

/// The operations as assembly. Flags are set right before they are used.
fn assembly(isa: Isa, ops: &[Op]) -> String {
    let (r, l) = (REGISTERS[isa.index()], LOW[isa.index()]);
    let x86 = isa == Isa::X86_64;
    let mut text = String::new();
    for (i, op) in ops.iter().enumerate() {
        let line = match (*op, x86) {
            (Op::Define(a), true) => format!("movq $7, %{}", r[a]),
            (Op::Define(a), false) => format!("mov {}, #7", r[a]),
            (Op::Use(a), true) => format!("testq %{0}, %{0}", r[a]),
            (Op::Use(a), false) => format!("cmp {}, #0", r[a]),
            (Op::UseLow(a), true) => format!("testl %{0}, %{0}", l[a]),
            (Op::UseLow(a), false) => format!("cmp {}, #0", l[a]),
            (Op::Move(a, b), true) => format!("movq %{}, %{}", r[b], r[a]),
            (Op::Move(a, b), false) => format!("mov {}, {}", r[a], r[b]),
            (Op::MoveLow(a, b), true) => format!("movl %{}, %{}", l[b], l[a]),
            (Op::MoveLow(a, b), false) => format!("mov {}, {}", l[a], l[b]),
            (Op::Store(s, a), true) => format!("movq %{}, {}(%rsp)", r[a], 8 * s),
            (Op::Store(s, a), false) => format!("str {}, [sp, #{}]", r[a], 8 * s),
            (Op::StoreHalf(s, h, a), true) => format!("movl %{}, {}(%rsp)", l[a], 8 * s + 4 * h),
            (Op::StoreHalf(s, h, a), false) => format!("str {}, [sp, #{}]", l[a], 8 * s + 4 * h),
            (Op::Load(a, s), true) => format!("movq {}(%rsp), %{}", 8 * s, r[a]),
            (Op::Load(a, s), false) => format!("ldr {}, [sp, #{}]", r[a], 8 * s),
            (Op::LoadHalf(a, s, h), true) => format!("movl {}(%rsp), %{}", 8 * s + 4 * h, l[a]),
            (Op::LoadHalf(a, s, h), false) => format!("ldr {}, [sp, #{}]", l[a], 8 * s + 4 * h),
            (Op::AddTo(s, a), true) => format!("addq %{}, {}(%rsp)", r[a], 8 * s),
            (Op::AddFrom(a, s), true) => format!("addq {}(%rsp), %{}", 8 * s, r[a]),
            (Op::AddTo(..) | Op::AddFrom(..), false) => "nop".to_owned(),
            (Op::Site, true) => "site callq leaf".to_owned(),
            (Op::Site, false) => "site bl leaf".to_owned(),
            (Op::Plain, true) => "callq plain".to_owned(),
            (Op::Plain, false) => "bl plain".to_owned(),
            (Op::Branch(to), x86) => {
                let to = to % ops.len();
                let back = if to < i { 'b' } else { 'f' };
                match x86 {
                    true => format!("movl $1, %eax\ntestl %eax, %eax\nje 1{to:02}{back}"),
                    false => format!("mov x0, #1\ncbz x0, 1{to:02}{back}"),
                }
            }
        };
        // The label is behind the operation.
        text.push_str(&format!("{line}\n1{i:02}:\n"));
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// A program is assembled once per batch.
    #[test]
    fn verifier_and_oracle_agree(batch in prop::collection::vec(prop::collection::vec(op(), 2..14), 1..100)) {
        for isa in Isa::ALL {
            let cases: Vec<Case> = batch
                .iter()
                .enumerate()
                .map(|(i, ops)| case(format!("f{i}").leak(), Framed, &assembly(isa, ops)))
                .collect();
            let fixture = Program::new(isa, "oracle", &cases);
            for (case, ops) in cases.iter().zip(&batch) {
                let found = program(isa, &fixture.file, &fixture.spine(case)).err();
                let kinds: Vec<Kind> = found.iter().flat_map(|e| &e.0).map(|f| f.kind).collect();
                prop_assert_eq!(!kinds.is_empty(), breaks(isa, ops), "{} {:?} {:?}", isa, ops, found.map(|f| f.to_string()));
            }
        }
    }
}

/// The property is about something: both verdicts occur, among functions with sites.
#[test]
fn both_verdicts_occur() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = prop::collection::vec(op(), 2..14);
    let mut verdicts = [0, 0];
    for _ in 0..2000 {
        let ops = strategy.new_tree(&mut runner).unwrap().current();
        if ops.iter().any(|op| matches!(op, Op::Site)) {
            verdicts[usize::from(breaks(Isa::X86_64, &ops))] += 1;
        }
    }
    assert!(verdicts.iter().all(|n| *n > 100), "{verdicts:?}");
}
