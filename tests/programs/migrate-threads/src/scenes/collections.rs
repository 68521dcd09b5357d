//! Collections of `alloc` and sorting of `core`, with comparisons and keys that contain points.

use core::cmp::{Ordering, Reverse};
use core::fmt::Write;

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap, LinkedList, VecDeque, btree_map::Entry};

use dyad::prelude::thread::*;

use crate::schedule::point;

/// Ordered by its number, then backwards by its text, with points in between.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Key(u32, String);

impl Ord for Key {
    fn cmp(&self, o: &Key) -> Ordering {
        point();
        self.0.cmp(&o.0).then_with(|| {
            point();
            o.1.cmp(&self.1)
        })
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, o: &Key) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

/// An entry of the queue: the cheapest is the greatest.
#[derive(Debug, PartialEq, Eq)]
struct State {
    cost: u32,
    at: usize,
}

impl Ord for State {
    fn cmp(&self, o: &Self) -> Ordering {
        point();
        o.cost.cmp(&self.cost).then(self.at.cmp(&o.at))
    }
}

impl PartialOrd for State {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

fn dijkstra(g: &[Vec<(usize, u32)>], from: usize) -> Vec<Option<u32>> {
    let mut d = vec![None; g.len()];
    let mut h = BinaryHeap::new();
    d[from] = Some(0);
    h.push(State { cost: 0, at: from });
    while let Some(State { cost, at }) = h.pop() {
        if d[at].is_some_and(|x| cost > x) {
            continue;
        }
        for &(to, w) in &g[at] {
            let n = cost + w;
            point();
            if d[to].is_none_or(|x| n < x) {
                d[to] = Some(n);
                h.push(State { cost: n, at: to })
            }
        }
    }
    d
}

/// A number with a partial order only.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
struct F(f64);

/// Numbers that look random: xorshift.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// All of it.
pub fn run(out: &mut String) {
    let mut r = Rng(88172645463325252);
    let mut m: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    for i in 0..60 {
        let k = Key((r.next() % 13) as u32, format!("s{}", r.next() % 4));
        match m.entry(k) {
            Entry::Vacant(v) => {
                point();
                v.insert(vec![i]);
            }
            Entry::Occupied(mut o) => {
                o.get_mut().push(i);
                if o.get().len() > 3 {
                    point();
                    o.remove();
                }
            }
        }
    }
    writeln!(out, "{m:?}").unwrap();
    writeln!(
        out,
        "{:?}",
        m.range(Key(3, "s9".into())..Key(7, "".into()))
            .map(|(k, v)| (k.0, v.len()))
            .collect::<Vec<_>>()
    )
    .unwrap();
    m.retain(|k, v| {
        point();
        v.push(k.0 as u8);
        k.0 % 3 != 0
    });
    let hi = m.split_off(&Key(6, "s3".into()));
    writeln!(
        out,
        "{} {} {:?} {:?}",
        m.len(),
        hi.len(),
        m.first_key_value(),
        hi.last_key_value().map(|x| &x.0.1)
    )
    .unwrap();
    let a: BTreeSet<Key> = m.into_keys().collect();
    let b: BTreeSet<Key> = hi
        .keys()
        .cloned()
        .chain(a.iter().take(2).cloned())
        .collect();
    writeln!(
        out,
        "{} {:?} {}",
        a.union(&b).count(),
        a.intersection(&b)
            .map(|k| {
                point();
                k.0
            })
            .collect::<Vec<_>>(),
        a.is_subset(&b)
    )
    .unwrap();
    let mut h: BinaryHeap<Reverse<Key>> = (0..30)
        .map(|_| {
            Reverse(Key(
                (r.next() % 9) as u32,
                "h".repeat((r.next() % 3) as usize),
            ))
        })
        .collect();
    let mut o = vec![];
    while let Some(Reverse(k)) = h.pop() {
        o.push(k.0 * 10 + k.1.len() as u32);
        if o.len() == 5 {
            h.push(Reverse(Key(2, "new".into())));
            if let Some(mut t) = h.peek_mut() {
                t.0.0 += 5;
            }
        }
    }
    writeln!(out, "{o:?}").unwrap();
    let g: Vec<Vec<(usize, u32)>> = (0..24)
        .map(|i| {
            (0..3)
                .filter_map(|_| {
                    let t = (r.next() % 26) as usize;
                    (t < 24 && t != i).then(|| (t, (r.next() % 50) as u32))
                })
                .collect()
        })
        .collect();
    writeln!(out, "{:?}", dijkstra(&g, 0)).unwrap();
    let mut v: Vec<Key> = (0..200)
        .map(|_| Key((r.next() % 50) as u32, format!("{}", r.next() % 3)))
        .collect();
    let mut w = v.clone();
    let mut cmps = 0u32;
    v.sort_by(|a, b| {
        cmps += 1;
        point();
        b.cmp(a)
    });
    w.sort_unstable_by(|a, b| {
        point();
        a.cmp(b)
    });
    writeln!(
        out,
        "{} {} {}",
        cmps > 200,
        v[7].0,
        v.iter().rev().eq(w.iter())
    )
    .unwrap();
    w.sort_unstable_by_key(|k| {
        point();
        (k.0 * 7 % 11, k.0)
    });
    w.dedup_by_key(|k| {
        point();
        k.0
    });
    writeln!(out, "{:?}", w.iter().map(|k| k.0).collect::<Vec<_>>()).unwrap();
    w.sort();
    let bs: Vec<_> = [0, 7, 25, 49, 99]
        .iter()
        .map(|n| {
            w.binary_search_by(|k| {
                point();
                k.0.cmp(n)
            })
            .map_err(|e| {
                point();
                e * 100
            })
        })
        .collect();
    writeln!(
        out,
        "{bs:?} {}",
        w.partition_point(|k| {
            point();
            k.0 < 20
        })
    )
    .unwrap();
    v.sort_by_cached_key(|k| {
        point();
        format!("{:03}", k.0 ^ 21)
    });
    writeln!(out, "{} {}", v[0].0, v[199].0).unwrap();
    let (lo, mid, hi) = v.select_nth_unstable_by(60, |a, b| {
        point();
        a.0.cmp(&b.0)
    });
    writeln!(
        out,
        "{} {} {}",
        lo.len(),
        mid.0,
        hi.iter().all(|k| k.0 >= mid.0)
    )
    .unwrap();
    let mut q: VecDeque<F> = (0..20).map(|i| F(i as f64 * 1.7 % 5.0)).collect();
    q.rotate_left(7);
    for _ in 0..5 {
        let x = q.pop_back().unwrap();
        point();
        q.push_front(F(x.0 * 2.0));
    }
    q.make_contiguous().sort_by(|a, b| {
        point();
        a.partial_cmp(b).unwrap()
    });
    q.retain(|f| {
        point();
        f.0 > 1.0
    });
    q.extend([F(0.5), F(f64::INFINITY)]);
    writeln!(
        out,
        "{q:?} {:?}",
        q.iter().map(|f| f.0).fold(f64::NAN, f64::min)
    )
    .unwrap();
    let mut l: LinkedList<String> = LinkedList::new();
    for i in 0..8 {
        if i % 2 == 0 {
            l.push_back(format!("b{i}"))
        } else {
            l.push_front(format!("f{i}"))
        }
        point();
    }
    let mut t = l.split_off(3);
    t.append(&mut l);
    writeln!(out, "{t:?}").unwrap();
    let mut s: Vec<String> = t.into_iter().collect();
    let d: Vec<String> = s
        .drain(1..4)
        .map(|x| {
            point();
            x + "!"
        })
        .collect();
    s.splice(
        1..2,
        d.iter().map(|x| {
            point();
            x.to_uppercase()
        }),
    );
    s.insert(0, "first".into());
    s.swap_remove(2);
    s.truncate(6);
    writeln!(out, "{s:?} {d:?} {:?}", s.concat()).unwrap();
    let mut x = [5i8, -3, 9, 0, -7, 2];
    x.sort_by_key(|v| {
        point();
        v.unsigned_abs()
    });
    x[1..5].reverse();
    x.rotate_right(2);
    writeln!(
        out,
        "{x:?} {:?} {:?}",
        x.iter().max_by_key(|v| {
            point();
            v.abs()
        }),
        x.split(|v| {
            point();
            *v < 0
        })
        .map(|s| s.len())
        .collect::<Vec<_>>()
    )
    .unwrap();
    let mut fl: Vec<f32> = (0..60).map(|i| (i * 37 % 61) as f32 - 30.5).collect();
    fl.sort_by(|a, b| {
        point();
        a.total_cmp(b)
    });
    writeln!(out, "{:?}", &fl[..5]).unwrap();
    let mut two: Vec<(u8, u64)> = (0..100)
        .map(|_| ((r.next() % 7) as u8, r.next() % 100))
        .collect();
    two.sort_by(|(a, _), (b, _)| {
        point();
        a.cmp(b)
    });
    writeln!(
        out,
        "{:?}",
        two.iter()
            .map(|x| x.1)
            .fold(0u64, |a, b| a.wrapping_mul(31).wrapping_add(b))
    )
    .unwrap();
    let taken: Vec<(u8, u64)> = two
        .extract_if(.., |x| {
            point();
            x.0 == 3
        })
        .collect();
    writeln!(out, "{} {}", taken.len(), two.len()).unwrap();
}
