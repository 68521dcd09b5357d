//! A function as values, uses and sites: what crosses which site, and where a value has to be loaded again.
//!
//! Everything here follows single values from their uses back to their definition, so that it costs what the program
//! uses, not functions times values.

use super::error::SpineError;
use super::inst::{Callee, Inst};
use crate::llvm::{Function, Kind, Lexed, lex};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The number of a value in its function.
pub(super) type Value = usize;
/// The number of a block in its function.
pub(super) type Block = usize;

/// Where an instruction is in its block. Arguments are made at -1; phis of the blocks behind use values at [`END`].
pub(super) type Position = i64;
/// Behind all instructions of a block.
pub(super) const END: Position = Position::MAX;

/// What the pass has to know of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Phi,
    Alloca {
        ty: String,
        align: u64,
    },
    /// A call behind which there is the stack map of this site.
    Site(usize),
    StackMap,
    Return,
    Other,
}

/// An instruction.
pub(super) struct Read<'a> {
    pub line: Lexed<'a>,
    pub role: Role,
    /// The value that it makes.
    pub makes: Option<Value>,
    /// The tokens that are values, in order.
    pub uses: Vec<(usize, Value)>,
}

/// Where a value is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub block: Block,
    pub at: Position,
}

/// The place of a site.
#[derive(Clone, Copy, Debug)]
pub(super) struct SiteAt {
    pub block: Block,
    /// Of the call.
    pub at: Position,
}

fn is_stackmap(callee: &Callee) -> bool {
    matches!(callee, Callee::Named(name) if name == "llvm.experimental.stackmap")
}

/// A function that has been read.
pub(super) struct Body<'a> {
    numbers: HashMap<&'a str, Block>,
    pub labels: Vec<&'a str>,
    pub blocks: Vec<Vec<Read<'a>>>,
    /// By value.
    pub names: Vec<&'a str>,
    pub made: Vec<Made>,
    pub uses: Vec<Vec<(Block, Position)>>,
    /// The blocks from which control comes, one for each way.
    pub before: Vec<Vec<Block>>,
    next: Vec<Vec<Block>>,
    pub sites: Vec<SiteAt>,
    /// By block, in their order.
    pub sites_in: Vec<Vec<usize>>,
    /// Places of blocks in an order in which most come behind those that control comes from.
    order: Vec<usize>,
}

impl<'a> Body<'a> {
    /// Reads a function whose header is `header`.
    ///
    /// # Errors
    ///
    /// If an instruction cannot be understood.
    pub fn of(f: &'a Function, header: &Lexed<'a>) -> Result<Body<'a>, SpineError> {
        let labels: Vec<&str> = f.blocks.iter().map(|b| b.label.as_str()).collect();
        let numbers: HashMap<&str, Block> =
            labels.iter().enumerate().map(|(n, l)| (*l, n)).collect();
        let mut body = Body {
            numbers,
            blocks: Vec::with_capacity(labels.len()),
            names: Vec::new(),
            made: Vec::new(),
            uses: Vec::new(),
            before: vec![Vec::new(); labels.len()],
            next: vec![Vec::new(); labels.len()],
            sites: Vec::new(),
            sites_in: vec![Vec::new(); labels.len()],
            order: vec![usize::MAX; labels.len()],
            labels,
        };
        let mut values: HashMap<&str, Value> = HashMap::new();
        let arguments = (0..header.tokens.len()).filter(|i| header.kind(*i) == Some(Kind::Local));
        for i in arguments {
            body.value(header.name(i), 0, -1, &mut values);
        }
        for (number, block) in f.blocks.iter().enumerate() {
            let mut out: Vec<Read<'a>> = Vec::with_capacity(block.insts.len());
            for inst in &block.insts {
                let line = lex(inst)?;
                let mut role = Role::Other;
                match Inst::read(&line)? {
                    Inst::Phi => role = Role::Phi,
                    Inst::Alloca { ty, align, .. } => role = Role::Alloca { ty, align },
                    Inst::Call(call) if is_stackmap(&call.callee) => {
                        role = Role::StackMap;
                        let bad = || SpineError::unreadable(&f.name, inst);
                        let at = out.len().checked_sub(1).ok_or_else(bad)?;
                        body.sites_in[number].push(body.sites.len());
                        out[at].role = Role::Site(body.sites.len());
                        body.sites.push(SiteAt {
                            block: number,
                            at: at as Position,
                        });
                    }
                    Inst::End { to, is_return } => {
                        if is_return {
                            role = Role::Return;
                        }
                        for label in to {
                            let unknown = || SpineError::unreadable(&f.name, inst);
                            let to = *body.numbers.get(label.as_str()).ok_or_else(unknown)?;
                            body.next[number].push(to);
                            body.before[to].push(number);
                        }
                    }
                    _ => {}
                }
                let makes = (line.kind(0) == Some(Kind::Local) && line.is_mark(1, b'='))
                    .then(|| body.value(line.name(0), number, out.len() as Position, &mut values));
                out.push(Read {
                    line,
                    role,
                    makes,
                    uses: Vec::new(),
                });
            }
            body.blocks.push(out);
        }
        for (number, block) in body.blocks.iter_mut().enumerate() {
            for (at, read) in block.iter_mut().enumerate() {
                let l = &read.line;
                let first = if read.makes.is_some() { 2 } else { 0 };
                for i in (first..l.tokens.len()).filter(|i| l.kind(*i) == Some(Kind::Local)) {
                    let Some(value) = values.get(l.name(i)).copied() else {
                        continue;
                    };
                    read.uses.push((i, value));
                    // `[ %value, %block ]`
                    let place = match read.role {
                        Role::Phi => {
                            let unknown = || SpineError::unreadable(&f.name, l.line);
                            let from = body
                                .numbers
                                .get(l.name(i + 2))
                                .filter(|_| l.is_mark(i + 1, b','));
                            (*from.ok_or_else(unknown)?, END)
                        }
                        _ => (number, at as Position),
                    };
                    body.uses[value].push(place);
                }
            }
        }
        body.number_blocks();
        Ok(body)
    }

    fn value(
        &mut self,
        name: &'a str,
        block: Block,
        at: Position,
        values: &mut HashMap<&'a str, Value>,
    ) -> Value {
        let number = self.names.len();
        values.insert(name, number);
        self.names.push(name);
        self.made.push(Made { block, at });
        self.uses.push(Vec::new());
        number
    }

    /// Depth first, from the last block to the first.
    fn number_blocks(&mut self) {
        let mut left = self.labels.len();
        let mut seen = vec![false; left];
        let mut path = vec![(0, 0)];
        if let Some(first) = seen.first_mut() {
            *first = true;
        }
        while let Some((block, edge)) = path.last_mut() {
            match self.next[*block].get(*edge) {
                Some(&to) => {
                    *edge += 1;
                    if !std::mem::replace(&mut seen[to], true) {
                        path.push((to, 0));
                    }
                }
                None => {
                    left -= 1;
                    self.order[*block] = left;
                    path.pop();
                }
            }
        }
    }

    /// The sites that a value is live across: it is made before the call and used behind it. `live` says where else.
    pub fn crossed(&self, value: Value, live: &mut Live) -> Vec<usize> {
        let made = self.made[value];
        live.start(self.labels.len());
        let mut open = Vec::new();
        for &(block, at) in &self.uses[value] {
            live.until(block, at);
            if block != made.block {
                open.push(block);
            }
        }
        while let Some(block) = open.pop() {
            if std::mem::replace(&mut live.into[block], true) {
                continue;
            }
            for &from in &self.before[block] {
                live.until(from, END);
                if from != made.block {
                    open.push(from);
                }
            }
        }
        let mut found = Vec::new();
        for &block in &live.touched {
            let start = if block == made.block { made.at } else { -1 };
            let is_crossed = |s: &&usize| {
                let at = self.sites[**s].at;
                start < at && at < live.end[block]
            };
            found.extend(self.sites_in[block].iter().filter(is_crossed));
        }
        found.sort_unstable();
        found
    }

    /// Of the sites that a value crosses, those that it comes to without having crossed another one. `live` is what
    /// [`Body::crossed`] has left.
    pub fn first_crossed(&self, value: Value, crossed: &[usize], live: &Live) -> Vec<usize> {
        let made = self.made[value];
        let first = |block: Block, behind: Position| {
            let mut here = self.sites_in[block].iter().copied();
            here.find(|s| self.sites[*s].at > behind && crossed.binary_search(s).is_ok())
        };
        let mut found = Vec::new();
        let mut open = vec![(made.block, made.at)];
        let mut seen = HashSet::new();
        while let Some((block, behind)) = open.pop() {
            match first(block, behind) {
                Some(site) => found.push(site),
                None => {
                    let next = self.next[block].iter().copied();
                    open.extend(
                        next.filter(|b| live.into[*b] && seen.insert(*b))
                            .map(|b| (b, -1)),
                    );
                }
            }
        }
        found
    }

    /// Where a value comes from at each of `uses`, if it is to be loaded behind `sites`.
    pub fn registers(
        &self,
        made: Made,
        uses: impl Iterator<Item = (Block, Position)>,
        is_loaded: impl Fn(usize) -> bool,
    ) -> Registers {
        let mut found = Registers {
            loads: BTreeSet::new(),
            into: BTreeMap::new(),
        };
        let last = |block: Block, before: Position| {
            let made = (block == made.block && made.at < before).then_some((made.at, From::Made));
            let sites = self.sites_in[block].iter().rev().copied();
            let mut sites = sites.filter(|s| self.sites[*s].at < before && is_loaded(*s));
            let site = sites.next().map(|s| (self.sites[s].at, From::Site(s)));
            let later = made.into_iter().chain(site).max_by_key(|(at, _)| *at);
            later.map(|(_, from)| from)
        };
        let mut out: HashMap<Block, Option<From>> = HashMap::new();
        let mut open: Vec<(Block, Position)> = uses.collect();
        let mut blocks = Vec::new();
        while let Some((block, at)) = open.pop() {
            let from = match at {
                END => *out.entry(block).or_insert_with(|| last(block, END)),
                at => last(block, at),
            };
            match from {
                Some(From::Site(site)) => drop(found.loads.insert(site)),
                Some(_) => {}
                None if found.into.insert(block, None).is_none() => {
                    blocks.push(block);
                    open.extend(self.before[block].iter().map(|b| (*b, END)));
                }
                None => {}
            }
        }
        blocks.sort_unstable_by_key(|b| self.order[*b]);
        loop {
            let mut changed = false;
            for &block in &blocks {
                let known = found.into[&block];
                let mut from = known;
                for before in &self.before[block] {
                    let there = out[before].or_else(|| found.into.get(before).copied().flatten());
                    from = match (from, there) {
                        (None, there) => there,
                        (Some(from), Some(there)) if from != there => Some(From::Phi(block)),
                        (from, _) => from,
                    };
                }
                if from != known && known != Some(From::Phi(block)) {
                    found.into.insert(block, from);
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        // A place that was taken for one where several values meet before it was known that they are one.
        let is_phi = |b: &Block| found.into[b] == Some(From::Phi(*b));
        let phis: Vec<Block> = blocks.iter().copied().filter(is_phi).collect();
        let mut one: HashMap<Block, From> = HashMap::new();
        let meant = |one: &HashMap<Block, From>, mut from: From| {
            while let From::Phi(block) = from
                && let Some(other) = one.get(&block)
            {
                from = *other;
            }
            from
        };
        loop {
            let known = one.len();
            for &block in phis
                .iter()
                .filter(|b| !one.contains_key(b))
                .collect::<Vec<_>>()
            {
                let there = self.before[block].iter();
                let there = there.map(|b| out[b].or_else(|| found.into.get(b).copied().flatten()));
                let mut there = there.flatten().map(|f| meant(&one, f));
                let mut there = there.by_ref().filter(|f| *f != From::Phi(block));
                if let Some(first) = there.next()
                    && there.all(|f| f == first)
                {
                    one.insert(block, first);
                }
            }
            if known == one.len() {
                break;
            }
        }
        for from in found.into.values_mut().flatten() {
            *from = meant(&one, *from);
        }
        found
    }
}

/// Where a value is live.
#[derive(Default)]
pub(super) struct Live {
    /// By block: whether it is when the block begins.
    into: Vec<bool>,
    /// By block: where it is used last.
    end: Vec<Position>,
    touched: Vec<Block>,
}

impl Live {
    fn start(&mut self, blocks: usize) {
        for block in self.touched.drain(..) {
            self.into[block] = false;
            self.end[block] = -1;
        }
        self.into.resize(blocks, false);
        self.end.resize(blocks, -1);
    }

    fn until(&mut self, block: Block, at: Position) {
        let end = &mut self.end[block];
        if *end == -1 {
            self.touched.push(block);
        }
        *end = at.max(*end);
    }
}

impl Body<'_> {
    /// Where a value comes from behind a block.
    pub fn at_end(&self, registers: &Registers, made: Made, block: Block) -> From {
        let sites = self.sites_in[block].iter().rev();
        let mut sites = sites.filter(|s| registers.loads.contains(s));
        match sites.next() {
            Some(site) => From::Site(*site),
            None if block == made.block => From::Made,
            None => {
                let into = registers.into.get(&block).copied().flatten();
                into.unwrap_or(From::Made)
            }
        }
    }

    /// The block from which the value of a phi at a token comes; none for other instructions.
    pub fn comes_from(&self, read: &Read<'_>, token: usize) -> Option<Block> {
        match read.role {
            Role::Phi => self.numbers.get(read.line.name(token + 2)).copied(),
            _ => None,
        }
    }
}

/// Where the value that is meant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// It was made.
    Made,
    /// It was loaded behind a site.
    Site(usize),
    /// From several places, where this block begins.
    Phi(Block),
}

/// Where a value comes from.
#[derive(Default)]
pub(super) struct Registers {
    /// Sites behind which it is loaded.
    pub loads: BTreeSet<usize>,
    /// At the start of blocks. `None` where control cannot come to.
    pub into: BTreeMap<Block, Option<From>>,
}
