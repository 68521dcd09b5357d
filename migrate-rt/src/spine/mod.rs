//! The spine pass: threads that can change their ISA inside of plain functions.
//!
//! A program whose main function is `#[dyad::main]` has threads that migrate at calls of
//! `dyad::thread::migrate_point()`. Functions from which a point can be reached, the *spine*, are rewritten so
//! that at such a call nothing that matters is in registers or on the native stack but frame records:
//! a migration then only has to lay out frames of the other ISA with its return addresses.
//!
//! ```text
//!  NeutralIr ──graph──> spine ──calls──> sites ──frame──> frames ──> NeutralIr
//!                                                                        │ llc, lld
//!    bundle <── table of sites <── verifier, both ISAs <── stack maps <── ELF per ISA
//! ```
//!
//! | step | what it does |
//! |---|---|
//! | [`points`] | migration points that nobody has written: in loops, before system calls |
//! | `graph` | which functions can be on the stack at a migration point |
//! | `calls` | their calls of each other get a convention in which callees preserve nothing, and a stack map each |
//! | `frame` | values that are live across such a call, and local variables, go to a frame on the data stack, which has the same address on every ISA |
//! | [`sites`] | from the linked programs: return addresses and frame sizes of both ISAs, for the verifier and for the frame transform |
//!
//! The pass decides what is stored where; that nothing else is live is then proven on the machine code
//! ([`verify`](crate::verify)), which trusts neither the pass nor the back ends. Whatever the pass does
//! not understand is an error.

mod attrs;
mod body;
mod calls;
mod conventions;
mod error;
mod frame;
mod graph;
mod inst;
pub mod points;
mod result;
pub mod sites;
mod types;
mod words;

pub use error::{Refusal, Refused, SpineError};
pub use inst::Odd;

use crate::files;
use crate::ir::{IrError, NeutralIr};
use crate::llvm::{Block, Item, Lexed, Line, Module, lex};
use crate::source::{Lines, Place};
use crate::verify::Conventions;
use graph::Graph;
use inst::{Callee, Inst};
use std::collections::HashMap;
use std::path::Path;

/// The function that all plain threads of a program start in.
pub const ROOT: &str = "dyad_spine_root";
/// The routine that asks whether the thread is to move, and moves it.
pub const LEAF: &str = "dyad_migrate_point";
/// In neutral IR: asks for the data stack pointer.
pub(crate) const FRAME: &str = "dyad.frame";
/// In neutral IR: sets the data stack pointer.
pub(crate) const SET_FRAME: &str = "dyad.frame.set";
/// Largest frame on a data stack. Smaller than the guard below it by far, so that no function can
/// reach over the guard.
pub const MAX_FRAME: u64 = 256 << 10;

/// In the names of data that only keep the address of a function of one ISA (`#[dyad::isa]`), so that no
/// optimisation changes how it is called.
const KEPT: &str = "7ADDRESS";

/// Whether a function with this header runs on one ISA only.
fn is_of_one_isa(header: &str) -> bool {
    header.contains(" section \".text.only_")
}

/// A call behind which a thread may have changed its ISA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its number, from 1.
    pub id: u64,
    /// Symbol of the function that makes the call.
    pub function: String,
    /// Where the call is, if the program has line tables.
    pub source: Option<Place>,
    /// For a call through a pointer: what it can reach.
    pub targets: Vec<String>,
    /// Whether the function may call itself here: many frames of one stack may then return to the site.
    pub recursive: bool,
}

/// What the pass has made of a program.
#[derive(Clone, Debug)]
pub struct Spine {
    /// The program.
    pub ir: NeutralIr,
    /// Symbols of the functions that were transformed.
    pub functions: Vec<String>,
    /// The sites, by number.
    pub sites: Vec<Site>,
    /// Frames on the data stack, by function.
    pub frames: Vec<(String, u64)>,
    /// What the program says of its calls.
    pub conventions: Conventions,
}

/// What has been refused so far.
#[derive(Default)]
struct Report {
    refused: Vec<Refusal>,
}

impl Report {
    fn refuse(&mut self, function: &str, source: Option<Place>, what: Refused) {
        self.refused.push(Refusal {
            function: crate::demangle(function.trim_matches('"')),
            source,
            what,
        });
    }

    fn done(self) -> Result<(), SpineError> {
        match self.refused.is_empty() {
            true => Ok(()),
            false => Err(SpineError::Refused(self.refused)),
        }
    }
}

/// Where functions are in the source.
struct Headers(HashMap<String, Place>);

impl Headers {
    fn of(module: &Module) -> Headers {
        let places = Lines::of(module.lines());
        let functions = module.items.iter().filter_map(|item| match item {
            Item::Function(f) => Some((f.name.clone(), places.of_function(&f.header)?)),
            Item::Line(_) => None,
        });
        Headers(functions.collect())
    }

    /// The place of a function.
    fn source(&self, name: &str) -> Option<Place> {
        self.0.get(name).cloned()
    }
}

/// Makes the threads of a program able to migrate. `None`: its main function is a task, which does not
/// need it. Files in `dir` keep the steps in between.
///
/// # Errors
///
/// Everything in the program that cannot be on the stack of a thread that migrates.
pub fn transform(neutral: &NeutralIr, dir: &Path) -> Result<Option<Spine>, SpineError> {
    let mut report = Report::default();
    if !neutral.defines(ROOT) {
        let text = neutral.text();
        let lines = Lines::of(text.lines());
        let is_point = |l: &&str| l.starts_with(' ') && l.contains(&format!("@{LEAF}("));
        if let Some(call) = text.lines().find(is_point) {
            report.refuse("main", lines.of_instruction(call), Refused::NoRoot);
        }
        for header in text.lines().filter(|l| points::asks(l)) {
            if let Line::Define(name) = Line::of(header) {
                let name = name.unwrap_or("main");
                report.refuse(name, lines.of_function(header), Refused::NoRoot);
            }
        }
        return report.done().map(|()| None);
    }
    let mut module = Module::parse(neutral.text())?;
    points::add(&mut module, &mut report)?;
    let graph = Graph::of(&module)?;
    if graph.root_used && !lacks!("spine::root-used") {
        report.refuse(ROOT, None, Refused::RootUsed);
    }
    let at = Headers::of(&module);
    for name in graph.exported.iter().filter(|_| !lacks!("spine::exported")) {
        report.refuse(name, at.source(name), Refused::Entry);
    }
    for name in graph.one_isa.iter().filter(|_| !lacks!("spine::one-isa")) {
        report.refuse(name, at.source(name), Refused::OneIsa);
    }
    for line in module.lines().filter(|l| l.contains(" alias ")) {
        for name in &graph.spine {
            if line.starts_with('@') && line.contains(&format!("@{name}")) {
                report.refuse(name, at.source(name), Refused::Alias);
            }
        }
    }
    let sites = calls::rewrite(&mut module, &graph, &mut report)?;
    report.done()?;

    let mut frames = Vec::new();
    let mut report = Report::default();
    for item in &mut module.items {
        if let Item::Function(f) = item
            && graph.spine.contains(&f.name)
        {
            let source = at.source(&f.name);
            let size = frame::build(f, source, &mut report).map_err(|e| e.of(&f.name))?;
            frames.push((f.name.trim_matches('"').to_owned(), size));
        }
    }
    report.done()?;
    for line in [
        format!("declare ptr @{FRAME}() nounwind willreturn memory(inaccessiblemem: read)"),
        format!(
            "declare void @{SET_FRAME}(ptr) nounwind willreturn memory(inaccessiblemem: readwrite)"
        ),
    ] {
        module.items.push(Item::Line(line));
    }
    let mut apart = Vec::new();
    let mut marked = 0;
    for item in &mut module.items {
        if let Item::Function(f) = item
            && graph.spine.contains(&f.name)
        {
            if !lacks!("spine::split") {
                split(&mut f.blocks)?;
            }
            if !lacks!("spine::define") {
                define(&mut f.blocks)?;
            }
            if !lacks!("spine::mark-plain") {
                mark_plain(&mut f.blocks, &mut marked)?;
            }
            let behind = f.blocks.iter().filter(|b| b.label.starts_with(SPLIT));
            apart.extend(behind.map(|b| format!("ptr blockaddress(@{}, %{})", f.name, b.label)));
        }
    }
    module
        .items
        .extend(kept_apart(&apart).into_iter().map(Item::Line));
    let text = module.print();
    files::write(&dir.join("spine.ll"), text.as_bytes())?;
    let ir = NeutralIr::check(text).map_err(|e: IrError| SpineError::Sites(e.to_string()))?;
    let conventions = conventions::read(ir.text())?;
    let mut report = Report::default();
    for (name, signature) in &conventions.functions {
        if signature.preserves_nothing && !signature.has_places() && !lacks!("spine::places") {
            report.refuse(name, at.source(name), Refused::Arguments);
        }
    }
    report.done()?;
    let functions = graph.spine.iter().map(|n| n.trim_matches('"').to_owned());
    Ok(Some(Spine {
        ir,
        functions: functions.collect(),
        sites,
        frames,
        conventions,
    }))
}

/// The name of the list of [`kept_apart`].
const BLOCKS: &str = "dyad.spine.blocks";
/// What labels of blocks behind sites begin with.
const SPLIT: &str = "spine.split.";

/// A list of blocks, so that back ends do not make one block of two: a block that has its address taken
/// stays as it is. The list itself is in a section that back ends do not write.
fn kept_apart(blocks: &[String]) -> Option<String> {
    (!blocks.is_empty()).then(|| {
        format!(
            "@{BLOCKS} = internal constant [{} x ptr] [{}], section \"llvm.metadata\"",
            blocks.len(),
            blocks.join(", ")
        )
    })
}

/// Ends a block behind every site: back ends share constants within a block, and would keep one across the
/// call that is needed before it and behind it.
fn split(blocks: &mut Vec<Block>) -> Result<(), SpineError> {
    let mut last: HashMap<String, String> = HashMap::new();
    let mut out: Vec<Block> = Vec::new();
    for block in std::mem::take(blocks) {
        let name = block.label.clone();
        let mut current = Block {
            label: block.label,
            insts: Vec::new(),
        };
        let mut insts = block.insts.into_iter().peekable();
        while let Some(inst) = insts.next() {
            let site = inst.contains("@llvm.experimental.stackmap(");
            current.insts.push(inst);
            if site && insts.peek().is_some() {
                let label = format!("{SPLIT}{}", out.len());
                current.insts.push(format!("br label %{label}"));
                last.insert(name.clone(), label.clone());
                let next = Block {
                    label,
                    insts: Vec::new(),
                };
                out.push(std::mem::replace(&mut current, next));
            }
        }
        out.push(current);
    }
    calls::redirect(&mut out, &last)?;
    *blocks = out;
    Ok(())
}

/// The first number of stack maps that are no sites: each is behind a plain call through a pointer.
pub(crate) const PLAIN: u64 = 1 << 40;

/// Marks plain calls through pointers in a function that has several kinds of them, so that the verifier knows of each what
/// it passes. `marked` counts them.
fn mark_plain(blocks: &mut [Block], marked: &mut u64) -> Result<(), SpineError> {
    let mut calls = Vec::new();
    for (b, block) in blocks.iter().enumerate() {
        for (i, inst) in block.insts.iter().enumerate() {
            // Most instructions are no calls.
            if !inst.contains("call ") {
                continue;
            }
            let l = lex(inst)?;
            if let Inst::Call(call) = Inst::read(&l)?
                && call.callee == Callee::Pointer
                && l.span(call.convention.start, call.convention.end) != calls::CONVENTION
            {
                calls.push((b, i, call.signature));
            }
        }
    }
    if calls.iter().all(|(.., signature)| *signature == calls[0].2) {
        return Ok(());
    }
    // The last first: what stands before stays where it is.
    for (b, i, _) in calls.into_iter().rev() {
        blocks[b]
            .insts
            .insert(i + 1, calls::stackmap(PLAIN + *marked));
        *marked += 1;
    }
    Ok(())
}

/// Whether an instruction puts a vector together or takes it apart.
fn is_of_vectors(l: &Lexed<'_>) -> bool {
    ["insertelement", "extractelement", "shufflevector"]
        .iter()
        .any(|w| l.is_word(2, w))
}

/// Has whatever computes a value compute with zeros where it may take anything, and calls pass zeros where they pass nothing:
/// also within constants. Back ends would read a register or a slot that was written before a site, or never: harmless, but
/// not to be told from what is not. Parts of vectors stay: what they leave out is not taken for a value.
fn define(blocks: &mut [Block]) -> Result<(), SpineError> {
    for inst in blocks.iter_mut().flat_map(|b| &mut b.insts) {
        if !inst.contains("poison") && !inst.contains("undef") {
            continue;
        }
        let l = lex(inst)?;
        let nothing = |i: &usize| l.is_word(*i, "poison") || l.is_word(*i, "undef");
        let places: Vec<usize> = match Inst::read(&l)? {
            Inst::Phi => (1..l.tokens.len()).filter(nothing).collect(),
            Inst::Call(call) => {
                let intrinsic = matches!(&call.callee, Callee::Named(n) if n.starts_with("llvm."));
                let values = call.args.clone();
                let values = values.filter(|_| !intrinsic && call.callee != Callee::Asm);
                values.filter(nothing).collect()
            }
            Inst::Other if l.is_mark(1, b'=') && !is_of_vectors(&l) => {
                (3..l.tokens.len()).filter(nothing).collect()
            }
            _ => continue,
        };
        let mut out = String::with_capacity(inst.len());
        let mut done = 0;
        for at in places.into_iter().map(|i| &l.tokens[i].at) {
            out.push_str(&inst[done..at.start]);
            out.push_str("zeroinitializer");
            done = at.end;
        }
        out.push_str(&inst[done..]);
        *inst = out;
    }
    Ok(())
}
