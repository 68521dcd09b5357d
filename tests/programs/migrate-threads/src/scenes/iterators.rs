//! Iterators: adapters of `core` over iterators with points in `next`, points in their closures, boxed ones,
//! ones without an end.

use core::fmt::Write;
use core::iter;

use alloc::collections::BTreeMap;

use dyad::prelude::thread::*;

use crate::schedule::point;

/// The sequence of Collatz, up to one.
struct Collatz(u64);

impl Iterator for Collatz {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        point();
        if self.0 == 1 {
            return None;
        }
        self.0 = if self.0.is_multiple_of(2) {
            self.0 / 2
        } else {
            3 * self.0 + 1
        };
        Some(self.0)
    }
}

/// A tree whose iterator is made of boxed ones.
struct Tree {
    v: i32,
    kids: Vec<Tree>,
}

impl Tree {
    fn iter(&self) -> Box<dyn Iterator<Item = i32> + '_> {
        point();
        Box::new(iter::once(self.v).chain(self.kids.iter().flat_map(|k| k.iter())))
    }

    fn build(d: i32, v: i32) -> Tree {
        Tree {
            v,
            kids: (0..d)
                .map(|i| {
                    point();
                    Tree::build(d - 1, v * 10 + i)
                })
                .collect(),
        }
    }
}

fn evens(v: &[u32]) -> impl Iterator<Item = &u32> + Clone + '_ {
    v.iter().filter(|x| {
        point();
        **x % 2 == 0
    })
}

/// An iterator without an end, inside of which others end.
fn primes() -> impl Iterator<Item = u32> {
    (2u32..).filter(|n| {
        (2..).take_while(|d| d * d <= *n).all(|d| {
            if d == 2 {
                point();
            }
            n % d != 0
        })
    })
}

fn sum_dyn(it: &mut dyn Iterator<Item = u32>) -> u64 {
    let mut s = 0;
    for x in it {
        point();
        s += x as u64;
    }
    s
}

struct Fib {
    a: u64,
    b: u64,
}

impl Iterator for Fib {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        let r = self.a;
        self.a = self.b;
        self.b += r;
        point();
        Some(r)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (100, None)
    }
}

impl DoubleEndedIterator for Down {
    fn next_back(&mut self) -> Option<i8> {
        point();
        if self.0 > self.1 {
            return None;
        }
        self.0 += 1;
        Some(self.0 - 1)
    }
}

/// Numbers between two, from both ends.
struct Down(i8, i8);

impl Iterator for Down {
    type Item = i8;
    fn next(&mut self) -> Option<i8> {
        point();
        if self.0 > self.1 {
            return None;
        }
        self.1 -= 1;
        Some(self.1 + 1)
    }
}

impl ExactSizeIterator for Down {
    fn len(&self) -> usize {
        (self.1 - self.0 + 1) as usize
    }
}

/// All of it.
#[allow(clippy::double_ended_iterator_last, reason = "all of them pass points")]
pub fn run(out: &mut String) {
    let v: Vec<u32> = (0..40)
        .map(|i| {
            point();
            i * i % 37
        })
        .collect();
    writeln!(out, "{:?} {:?}", evens(&v).count(), evens(&v).clone().max()).unwrap();
    writeln!(out, "{:?}", Collatz(27).take(12).collect::<Vec<_>>()).unwrap();
    writeln!(out, "{} {:?}", Collatz(97).count(), Collatz(27).max()).unwrap();
    writeln!(out, "{:?}", Tree::build(3, 1).iter().collect::<Vec<_>>()).unwrap();
    writeln!(
        out,
        "{:?}",
        primes().skip(5).step_by(3).take(10).collect::<Vec<_>>()
    )
    .unwrap();
    writeln!(out, "{}", sum_dyn(&mut primes().take(30))).unwrap();
    writeln!(
        out,
        "{}",
        sum_dyn(&mut v.iter().copied().rev().skip_while(|x| {
            point();
            x % 3 != 0
        }))
    )
    .unwrap();
    let (a, b): (Vec<u32>, Vec<u32>) = v.iter().partition(|x| {
        point();
        **x > 10
    });
    writeln!(out, "{a:?} {b:?}").unwrap();
    writeln!(
        out,
        "{:?}",
        v.windows(3)
            .filter(|w| {
                point();
                w[0] < w[1] && w[1] < w[2]
            })
            .map(|w| w.iter().sum::<u32>())
            .collect::<Vec<_>>()
    )
    .unwrap();
    writeln!(
        out,
        "{:?}",
        v.chunks(7)
            .map(|c| {
                point();
                c.iter().rev().fold(0u64, |a, x| a * 41 + *x as u64)
            })
            .collect::<Vec<_>>()
    )
    .unwrap();
    writeln!(
        out,
        "{:?}",
        v.iter()
            .scan((0, 1), |s, x| {
                point();
                s.0 += x;
                s.1 *= 2;
                if s.0 > 200 { None } else { Some(s.0 + s.1) }
            })
            .collect::<Vec<_>>()
    )
    .unwrap();
    writeln!(
        out,
        "{:?}",
        v.iter()
            .zip(Fib { a: 0, b: 1 })
            .map(|(x, f)| {
                point();
                *x as u64 ^ f
            })
            .enumerate()
            .filter_map(|(i, x)| (i % 4 == 1).then_some(x))
            .collect::<Vec<_>>()
    )
    .unwrap();
    let mut pk = v.iter().peekable();
    let mut groups = Vec::new();
    while let Some(x) = pk.next() {
        point();
        let mut n = 1;
        while pk
            .next_if(|y| {
                point();
                *y % 2 == x % 2
            })
            .is_some()
        {
            n += 1;
        }
        groups.push(n);
    }
    writeln!(out, "{groups:?}").unwrap();
    writeln!(
        out,
        "{:?} {:?}",
        v.iter().position(|x| {
            point();
            *x == 36
        }),
        v.iter().rposition(|x| {
            point();
            *x == 36
        })
    )
    .unwrap();
    writeln!(
        out,
        "{:?}",
        v.iter().try_fold(0u8, |a, x| {
            point();
            a.checked_add(*x as u8)
        })
    )
    .unwrap();
    let r: Result<u32, String> = v
        .iter()
        .map(|x| {
            point();
            if *x == 34 {
                Err(format!("bad {x}"))
            } else {
                Ok(*x)
            }
        })
        .sum();
    writeln!(out, "{r:?}").unwrap();
    let o: Option<Vec<u32>> = v
        .iter()
        .map(|x| {
            point();
            x.checked_add(1)
        })
        .collect();
    writeln!(out, "{o:?}").unwrap();
    let m: BTreeMap<u32, Vec<u32>> = v.iter().fold(BTreeMap::new(), |mut m, x| {
        point();
        m.entry(x % 5).or_default().push(*x);
        m
    });
    writeln!(out, "{m:?}").unwrap();
    writeln!(
        out,
        "{:?}",
        m.iter()
            .flat_map(|(k, v)| {
                point();
                v.iter().map(move |x| {
                    point();
                    (*k, *x)
                })
            })
            .min_by_key(|(k, x)| {
                point();
                (*x as i32 - 20).abs() * 10 + *k as i32
            })
    )
    .unwrap();
    writeln!(
        out,
        "{:?} {:?}",
        Down(-5, 5).rev().collect::<Vec<_>>(),
        Down(-3, 3).zip(Down(0, 9).rev()).last()
    )
    .unwrap();
    writeln!(
        out,
        "{:?}",
        iter::successors(Some(1u32), |x| {
            point();
            x.checked_mul(7)
        })
        .collect::<Vec<_>>()
    )
    .unwrap();
    let mut state = 7u32;
    writeln!(
        out,
        "{:?}",
        iter::from_fn(|| {
            point();
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (!state.is_multiple_of(11)).then_some(state >> 20)
        })
        .collect::<Vec<_>>()
    )
    .unwrap();
    writeln!(
        out,
        "{:?}",
        v.iter()
            .map(|x| {
                point();
                *x as f64 / 3.0
            })
            .sum::<f64>()
    )
    .unwrap();
    writeln!(out, "{:?}", v.iter().map(|x| *x as f32).product::<f32>()).unwrap();
    let nested = vec![vec![1, 2], vec![], vec![3, 4, 5]];
    writeln!(
        out,
        "{:?}",
        nested
            .into_iter()
            .flatten()
            .map(|x| {
                point();
                x * 2
            })
            .collect::<alloc::collections::VecDeque<_>>()
    )
    .unwrap();
    let mut wheel = "hello".chars().cycle().skip(3);
    let mut word = String::new();
    for _ in 0..9 {
        point();
        word.extend(wheel.next());
    }
    writeln!(
        out,
        "{:?} {}",
        word,
        [3, 1, 2].iter().is_sorted_by(|a, b| {
            point();
            a <= b
        })
    )
    .unwrap();
    writeln!(out, "{:?}", v.array_chunks_like()).unwrap();
    let mut it = v.iter();
    let s: u32 = it
        .by_ref()
        .take_while(|x| {
            point();
            **x < 30
        })
        .sum();
    writeln!(out, "{s} {:?}", it.next()).unwrap();
    writeln!(
        out,
        "{:?} {:?}",
        v.iter().copied().reduce(|a, b| {
            point();
            a.max(b) ^ 1
        }),
        v.iter().min_by(|a, b| {
            point();
            (*a % 7).cmp(&(*b % 7))
        })
    )
    .unwrap();
    let (x, y): (Vec<_>, Vec<_>) = v
        .iter()
        .map(|x| {
            point();
            (x / 2, x % 2 == 0)
        })
        .unzip();
    writeln!(out, "{x:?} {y:?}").unwrap();
    writeln!(out, "{:?}", v.iter().cmp(x.iter())).unwrap();
    writeln!(
        out,
        "{:?}",
        v.chunk_by(|a, b| {
            point();
            a <= b
        })
        .map(<[u32]>::len)
        .collect::<Vec<_>>()
    )
    .unwrap();
}

trait Ext {
    fn array_chunks_like(&self) -> Vec<[u32; 4]>;
}

impl Ext for Vec<u32> {
    fn array_chunks_like(&self) -> Vec<[u32; 4]> {
        self.chunks_exact(4)
            .map(|c| {
                point();
                c.try_into().unwrap()
            })
            .collect()
    }
}
