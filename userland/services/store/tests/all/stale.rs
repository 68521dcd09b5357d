//! Two writers and two readers on nodes whose caches are as stale as can be; a writer dies between any two steps, and another node
//! takes its shards. Each flush is needed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use dyad_abi::NodeId;
use dyad_coherence::GlobalMem;
use dyad_coherence::stale::mutant::{Flushes, try_each};
use dyad_coherence::stale::{StaleMem, Task, pause};
use dyad_random::SplitMix64;
use dyad_shm::PhysAddr;
use dyad_store::{
    Cursor, Entry, Key, Layout, MAX_VALUE, SHARDS, Shard, StoreError, Table, Writer, owner,
};

const NODES: usize = 4;
const WRITERS: usize = 2;
const SEEDS: u64 = if cfg!(miri) { 1 } else { 16 };
const BASE: PhysAddr = PhysAddr(dyad_abi::boot::CXL_BASE);
const KEYS: usize = 6;
const PUTS: u64 = 40;
const LINES: u64 = 20;

fn node(n: usize) -> NodeId {
    NodeId::new(n as u64).unwrap()
}

fn layout() -> Layout {
    Layout::new(BASE, 1, LINES).unwrap()
}

fn key(n: usize) -> Key {
    Key((n as u128 * 0x1234_5678_9abc_def1).to_le_bytes())
}

fn writer_of(n: usize) -> usize {
    owner(key(n).shard(), NodeId::first(WRITERS))
        .unwrap()
        .index()
}

/// Value number `n` of a key: what it is, over one to three lines.
fn value(key: usize, n: u64) -> Vec<u8> {
    let mut random = SplitMix64(n * 8 + key as u64);
    let length = 16 + random.below(110) as usize;
    let mut bytes = n.to_le_bytes().to_vec();
    bytes.extend((8..length).map(|_| random.next() as u8));
    bytes
}

/// What has been put, as far as its writer has returned, and what was about to be put then.
#[derive(Default)]
struct Known {
    done: [AtomicU64; KEYS],
    begun: [AtomicU64; KEYS],
    writing: AtomicU64,
    died: AtomicBool,
}

/// Memory of a node that dies after so many operations.
struct Mortal<M> {
    mem: M,
    left: AtomicI64,
}

struct Died;

impl<M> Mortal<M> {
    fn step(&self) -> &M {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            resume_unwind(Box::new(Died));
        }
        &self.mem
    }
}

impl<M: GlobalMem> GlobalMem for Mortal<M> {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        self.mem.contains(at, len)
    }
    #[track_caller]
    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.step().load(at, order)
    }
    #[track_caller]
    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.step().store(at, value, order);
    }
    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        self.step().cas(at, old, new)
    }
    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.step().swap(at, value)
    }
    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        self.step().add(at, n)
    }
    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.step().or(at, bits)
    }
    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.step().and(at, bits)
    }
    fn fence(&self) {
        self.step().fence();
    }
    #[track_caller]
    fn writeback(&self, at: PhysAddr, len: u64) {
        self.step().writeback(at, len);
    }
    #[track_caller]
    fn invalidate(&self, at: PhysAddr, len: u64) {
        self.step().invalidate(at, len);
    }
    #[track_caller]
    fn load_fresh(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.step().load_fresh(at, order)
    }
    #[track_caller]
    fn store_through(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.step().store_through(at, value, order);
    }
}

/// The nodes that read, and live.
fn readers() -> impl Iterator<Item = NodeId> {
    NodeId::first(NODES).skip(WRITERS)
}

/// Puts and deletes keys of its own until it has done so many.
fn write(
    mem: &impl GlobalMem,
    known: &Known,
    writer: &mut Writer,
    keys: &[usize],
    seed: u64,
) -> Result<(), String> {
    let mut random = SplitMix64(seed);
    for _ in 0..PUTS {
        let k = keys[random.below(keys.len() as u64) as usize];
        let n = known.begun[k].load(Ordering::SeqCst) + 1;
        known.begun[k].store(n, Ordering::SeqCst);
        loop {
            match writer.put(mem, key(k), &value(k, n)) {
                Ok(_) => break,
                Err(StoreError::Again) => {
                    pause();
                    writer.collect(mem, readers());
                }
                Err(e) => return Err(e.to_string()),
            }
        }
        known.done[k].store(n, Ordering::SeqCst);
    }
    Ok(())
}

fn read(mem: &impl GlobalMem, known: &Known, me: usize, seed: u64) -> Result<(), String> {
    let table = Table::new(layout());
    let mut rounds = table.rounds(node(me));
    let mut random = SplitMix64(seed + me as u64);
    let mut last = [0; KEYS];
    let mut bytes = [0; MAX_VALUE];
    // Rounds go on as long as a writer may wait for them.
    let mut more = 20;
    while more > 0 || known.writing.load(Ordering::SeqCst) > 0 {
        more -= 1;
        rounds.step(mem);
        let k = random.below(KEYS as u64) as usize;
        let least = known.done[k].load(Ordering::SeqCst).max(last[k]);
        let section = table.sections().begin(mem, node(me), 0);
        let entry = table.get(mem, key(k), &mut bytes, &section);
        drop(section);
        let Some(entry) = entry else {
            match least {
                0 => continue,
                n => return Err(format!("key {k} is lost after put {n}")),
            }
        };
        let found = &bytes[..entry.length.min(MAX_VALUE)];
        let n = found.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
        if n < least || n > known.begun[k].load(Ordering::SeqCst) || found != value(k, n) {
            return Err(format!("key {k}: put {n} after put {least}"));
        }
        last[k] = n;
    }
    Ok(())
}

/// All keys of a writer.
fn keys_of(writer: usize) -> Vec<usize> {
    (0..KEYS).filter(|&k| writer_of(k) == writer).collect()
}

fn scenario(seed: u64, flushes: &Flushes) -> Result<(), String> {
    let mem = StaleMem::new(NODES, seed);
    let known = Known::default();
    known.writing.store(WRITERS as u64, Ordering::SeqCst);
    let dies_after = (SplitMix64(seed).below(1500) + 30) as i64;
    let nodes: Vec<_> = (0..NODES).map(|n| flushes.on(mem.node(n))).collect();
    let (nodes, known, mem) = (&nodes, &known, &mem);
    // Writer 0 dies. Writer 1 goes on with its shards, and has its own as before.
    let mortal = move || {
        let node0 = Mortal {
            mem: nodes[0],
            left: AtomicI64::new(dies_after),
        };
        let mut writer = Writer::new(layout(), node(0));
        let put = AssertUnwindSafe(|| write(&node0, known, &mut writer, &keys_of(0), seed));
        let result = match catch_unwind(put) {
            Ok(result) => result,
            Err(why) if why.is::<Died>() => Ok(()),
            Err(why) => resume_unwind(why),
        };
        mem.lose(0);
        known.died.store(true, Ordering::SeqCst);
        known.writing.fetch_sub(1, Ordering::SeqCst);
        result
    };
    let heir = move || {
        let mem = &nodes[1];
        let mut writer = Writer::new(layout(), node(1));
        // What it reads until the other one dies is old then.
        let table = Table::new(layout());
        while !known.died.load(Ordering::SeqCst) {
            pause();
            for k in keys_of(0) {
                let section = table.sections().begin(mem, node(1), 0);
                table.get(mem, key(k), &mut [0; 200], &section);
            }
        }
        let shards = (0..SHARDS).map(Shard::new);
        let theirs = shards.filter(|&s| owner(s, NodeId::first(WRITERS)) == Some(node(0)));
        writer.adopt(mem, theirs, [node(0)].into_iter());
        write(mem, known, &mut writer, &keys_of(1), seed + 1)?;
        write(mem, known, &mut writer, &keys_of(0), seed + 2)?;
        // Nothing of what was about to be put is lost: all lines are in an item of a key, or free.
        while writer.room().1 != 0 {
            pause();
            writer.collect(mem, readers());
        }
        let section = table.sections().begin(mem, node(1), 0);
        let (mut used, mut at) = (0, Cursor::default());
        let mut count = |_, entry: Entry| used += (3 + entry.length.div_ceil(8)).div_ceil(7) as u64;
        while let Some(next) = table.scan(mem, at, &mut count, &section) {
            at = next;
        }
        known.writing.fetch_sub(1, Ordering::SeqCst);
        match writer.room().0 + used {
            all if all == 2 * LINES => Ok(()),
            all => Err(format!("{all} lines of {}", 2 * LINES)),
        }
    };
    let mut tasks: Vec<Task<'_>> = vec![Box::new(mortal), Box::new(heir)];
    for (me, reader) in nodes.iter().enumerate().skip(WRITERS) {
        tasks.push(Box::new(move || read(reader, known, me, seed)));
    }
    mem.interleave(600_000, tasks)?;
    // Stamps may be read old; nothing is undone or overwritten.
    mem.check_writes()
}

#[test]
fn readers_find_each_put_and_each_flush_is_needed() {
    assert!(!keys_of(0).is_empty() && !keys_of(1).is_empty());
    let verdict = try_each(SEEDS, scenario).unwrap_or_else(|why| panic!("{why}"));
    for caught in &verdict.caught {
        println!("{}: seed {}: {}", caught.site, caught.seed, caught.why);
    }
    let survived: Vec<_> = verdict.survived.iter().map(ToString::to_string).collect();
    assert!(survived.is_empty() || cfg!(miri), "{survived:#?}");
}
