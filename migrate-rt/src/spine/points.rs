//! Migration points that nobody has written: in loops of functions that ask for it, and before system
//! calls.
//!
//! | asked for by | where the points are |
//! |---|---|
//! | `#[dyad::points(loops)]`: the function is in section [`LOOPS`] | at the head of each of its loops, as the optimiser has left them |
//! | `#[dyad::main(points = "syscalls")]`: the program defines [`SYSCALLS`] | before each call of a routine that enters the kernel, in all functions but those that are entered from outside |
//!
//! A point is what `dyad::thread::migrate_point()` is, inlined:
//!
//! ```text
//!   %points.tcb.N = call ptr @dyad_tcb()
//!   %points.at.N = getelementptr i8, ptr %points.tcb.N, i64 24
//!   %points.word.N = load atomic i64, ptr %points.at.N monotonic, align 8
//!   %points.asked.N = icmp ne i64 %points.word.N, 0
//!   br i1 %points.asked.N, label %points.go.N, label %points.on.N
//! points.go.N:
//!   call void @dyad_migrate_point()
//!   br label %points.on.N
//! points.on.N:
//! ```

use super::calls::redirect;
use super::error::{Refused, SpineError};
use super::inst::{Callee, Inst};
use super::{LEAF, ROOT, Report};
use crate::llvm::{Block, Function, Item, Module, declares, lex};
use crate::source::Lines;
use dyad_abi::user::migrate_word::REQUEST;
use std::collections::{BTreeSet, HashMap};

/// Section of the functions whose loops have points.
pub const LOOPS: &str = ".text.points_loops";
/// Datum of programs with points before system calls.
pub const SYSCALLS: &str = "dyad_points_syscalls";
/// Routines that enter the kernel. Those that end an invocation or a thread's life do not come back.
const CALLS: [&str; 4] = [
    "dyad_syscall",
    "dyad_invoke1",
    "dyad_request",
    "dyad_invoke",
];
/// Asks for the thread control block.
const BLOCK: &str = "dyad_tcb";
/// Where in it the request word is, in bytes.
const WORD: usize = core::mem::offset_of!(dyad_abi::user::Tcb, migrate) + REQUEST * 8;

/// Whether a function has asked for points in its loops.
pub(super) fn asks(header: &str) -> bool {
    header.contains(&section())
}

fn section() -> String {
    format!(" section \"{LOOPS}\"")
}

/// Adds the points that the program asks for.
///
/// # Errors
///
/// If an instruction cannot be understood; functions that cannot have points go to `report`.
pub(super) fn add(module: &mut Module, report: &mut Report) -> Result<(), SpineError> {
    let lines: Vec<String> = module.lines().map(str::to_owned).collect();
    let places = Lines::of(lines.iter().map(String::as_str));
    let datum = format!("@{SYSCALLS} = ");
    let syscalls = lines.iter().any(|l| l.starts_with(&datum));
    let mut numbers = 0;
    for item in &mut module.items {
        let Item::Function(f) = item else { continue };
        let loops = asks(&f.header);
        let outside = f.name != ROOT && !f.is_internal();
        if loops {
            f.header = f.header.replacen(&section(), "", 1);
            if outside {
                report.refuse(
                    &f.name,
                    places.of_function(&f.header),
                    Refused::PointsOutside,
                );
                continue;
            }
        }
        if outside || !(loops || syscalls) {
            continue;
        }
        let heads = match loops {
            true => heads(f).map_err(|e| e.of(&f.name))?,
            false => BTreeSet::new(),
        };
        insert(f, &heads, syscalls, &mut numbers).map_err(|e| e.of(&f.name))?;
    }
    if numbers > 0 {
        for (name, line) in [
            (LEAF, format!("declare void @{LEAF}()")),
            (BLOCK, format!("declare ptr @{BLOCK}()")),
        ] {
            if !lines.iter().any(|l| declares(l, name)) {
                module.items.push(Item::Line(line));
            }
        }
    }
    Ok(())
}

/// The blocks at which loops begin: those that control comes back to.
fn heads(f: &Function) -> Result<BTreeSet<String>, SpineError> {
    let index: HashMap<&str, usize> = f
        .blocks
        .iter()
        .enumerate()
        .map(|(i, b)| (b.label.as_str(), i))
        .collect();
    let mut next = Vec::new();
    for block in &f.blocks {
        let mut to = Vec::new();
        for inst in &block.insts {
            let line = lex(inst)?;
            if let Inst::End { to: labels, .. } = Inst::read(&line)? {
                for label in labels {
                    let unknown = || SpineError::unreadable("", inst);
                    to.push(*index.get(label.as_str()).ok_or_else(unknown)?);
                }
            }
        }
        next.push(to);
    }
    // Depth first: an edge to a block whose search has not ended closes a loop.
    let (mut open, mut seen) = (vec![false; next.len()], vec![false; next.len()]);
    let mut heads = BTreeSet::new();
    let mut path = vec![(0, 0)];
    seen[0] = true;
    open[0] = true;
    while let Some((block, edge)) = path.last_mut() {
        let from = *block;
        match next[from].get(*edge) {
            None => {
                open[from] = false;
                path.pop();
            }
            Some(&to) => {
                *edge += 1;
                if open[to] {
                    heads.insert(f.blocks[to].label.clone());
                } else if !seen[to] {
                    seen[to] = true;
                    open[to] = true;
                    path.push((to, 0));
                }
            }
        }
    }
    Ok(heads)
}

/// Puts points at the start of `heads`, and before system calls.
fn insert(
    f: &mut Function,
    heads: &BTreeSet<String>,
    syscalls: bool,
    numbers: &mut usize,
) -> Result<(), SpineError> {
    let mut last: HashMap<String, String> = HashMap::new();
    let mut blocks = Vec::new();
    for block in std::mem::take(&mut f.blocks) {
        let name = block.label.clone();
        let place = block.insts.iter().find_map(|i| place(i)).unwrap_or("");
        let mut due = heads.contains(&block.label);
        let mut current = Block {
            label: block.label,
            insts: Vec::new(),
        };
        for inst in &block.insts {
            let l = lex(inst)?;
            let read = Inst::read(&l)?;
            let calls = match &read {
                Inst::Call(call) => {
                    syscalls
                        && matches!(&call.callee, Callee::Named(n) if CALLS.contains(&n.as_str()))
                }
                _ => false,
            };
            let before = match read {
                Inst::Phi | Inst::Record | Inst::Alloca { .. } => false,
                _ => calls || std::mem::take(&mut due),
            };
            if before {
                due = false;
                *numbers += 1;
                let at = if calls { self::place(inst) } else { None };
                let next = point(&mut current, &mut blocks, *numbers, at.unwrap_or(place));
                last.insert(name.clone(), next);
            }
            current.insts.push(inst.clone());
        }
        blocks.push(current);
    }
    redirect(&mut blocks, &last)?;
    f.blocks = blocks;
    Ok(())
}

/// Ends `current` with a point. Gives the label of the block behind it, which is the current one then.
fn point(current: &mut Block, blocks: &mut Vec<Block>, n: usize, place: &str) -> String {
    let on = format!("points.on.{n}");
    for inst in [
        format!("%points.tcb.{n} = call ptr @{BLOCK}(){place}"),
        format!("%points.at.{n} = getelementptr i8, ptr %points.tcb.{n}, i64 {WORD}"),
        format!("%points.word.{n} = load atomic i64, ptr %points.at.{n} monotonic, align 8"),
        format!("%points.asked.{n} = icmp ne i64 %points.word.{n}, 0"),
        format!("br i1 %points.asked.{n}, label %points.go.{n}, label %{on}"),
    ] {
        current.insts.push(inst);
    }
    let next = Block {
        label: on.clone(),
        insts: Vec::new(),
    };
    blocks.push(std::mem::replace(current, next));
    blocks.push(Block {
        label: format!("points.go.{n}"),
        insts: vec![
            format!("call void @{LEAF}(){place}"),
            format!("br label %{on}"),
        ],
    });
    on
}

/// The place in the source that an instruction names, with the comma before it.
fn place(inst: &str) -> Option<&str> {
    let at = inst.rfind(", !dbg !")?;
    let number = &inst[at + ", !dbg !".len()..];
    let end = number.bytes().take_while(u8::is_ascii_digit).count();
    Some(&inst[at..at + ", !dbg !".len() + end])
}
