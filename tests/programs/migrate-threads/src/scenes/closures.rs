//! Closures in boxes, in tables and in each other; fixed points, memories, handlers of events, currying.
#![allow(clippy::type_complexity, reason = "written as it comes")]

use core::cell::{Cell, RefCell};
use core::fmt::Write;

use alloc::collections::BTreeMap;
use alloc::rc::Rc;

use dyad::prelude::thread::*;

use crate::schedule::point;

fn compose<A, B, C>(f: impl Fn(A) -> B, g: impl Fn(B) -> C) -> impl Fn(A) -> C {
    move |x| {
        point();
        g(f(x))
    }
}

fn twice(f: &dyn Fn(i64) -> i64, x: i64) -> i64 {
    point();
    f(f(x))
}

fn call_once(f: Box<dyn FnOnce(String) -> usize>) -> usize {
    point();
    f("abc".to_string())
}

/// Closures that hold nothing, numbers, vectors and texts.
fn make(n: u32) -> Vec<Box<dyn Fn(u64) -> u64>> {
    let mut v: Vec<Box<dyn Fn(u64) -> u64>> = Vec::new();
    for i in 0..n {
        match i % 4 {
            0 => v.push(Box::new(move |x| {
                point();
                x + i as u64
            })),
            1 => {
                #[allow(clippy::useless_vec, reason = "the closure is to own memory")]
                let t = vec![i as u64; 3];
                v.push(Box::new(move |x| {
                    point();
                    x ^ t.iter().sum::<u64>()
                }))
            }
            2 => v.push(Box::new(|x| x.rotate_left(3))),
            _ => {
                let s = format!("{i}");
                v.push(Box::new(move |x| {
                    point();
                    x.wrapping_mul(s.len() as u64 + 2)
                }))
            }
        }
    }
    v
}

/// A closure that calls itself.
fn fix<A: Copy, R>(f: &dyn Fn(&dyn Fn(A) -> R, A) -> R, a: A) -> R {
    point();
    f(&|x| fix(f, x), a)
}

fn apply_n<F: FnMut(usize)>(n: usize, mut f: F) {
    for i in 0..n {
        point();
        f(i)
    }
}

/// Calls back what it has borrowed.
struct Counter<'a> {
    hook: Option<&'a mut dyn FnMut(u32) -> bool>,
    n: u32,
}

impl Counter<'_> {
    fn bump(&mut self) -> bool {
        self.n += 1;
        point();
        let n = self.n;
        self.hook.as_mut().is_some_and(|h| {
            point();
            h(n)
        })
    }
}

type Op = fn(f64, f64) -> f64;

fn add(a: f64, b: f64) -> f64 {
    point();
    a + b
}

fn sub(a: f64, b: f64) -> f64 {
    a - b
}

fn mul(a: f64, b: f64) -> f64 {
    point();
    a * b
}

fn hyp(a: f64, b: f64) -> f64 {
    a * a + b * b
}

static OPS: [(&str, Op); 4] = [("add", add), ("sub", sub), ("mul", mul), ("hyp", hyp)];

/// A function that remembers its values.
struct Memo {
    f: fn(&Memo, u64) -> u64,
    seen: RefCell<BTreeMap<u64, u64>>,
    hits: Cell<u32>,
}

impl Memo {
    fn get(&self, n: u64) -> u64 {
        if let Some(v) = self.seen.borrow().get(&n) {
            self.hits.set(self.hits.get() + 1);
            return *v;
        }
        point();
        let v = (self.f)(self, n);
        self.seen.borrow_mut().insert(n, v);
        v
    }
}

type Handler = Rc<RefCell<dyn FnMut(&str, &mut Vec<String>)>>;

/// Handlers by name, shared and counted.
struct Events {
    handlers: Vec<(String, Handler)>,
}

impl Events {
    fn fire(&self, name: &str, log: &mut Vec<String>) {
        for (n, h) in &self.handlers {
            if n == name {
                point();
                (h.borrow_mut())(name, log);
            }
        }
    }
}

/// All of it.
pub fn run(out: &mut String) {
    writeln!(
        out,
        "{}",
        compose(
            |x: u32| {
                point();
                x as f32 * 0.5
            },
            |y: f32| format!("<{y}>")
        )(7)
    )
    .unwrap();
    let k = 3;
    writeln!(
        out,
        "{}",
        twice(
            &|x| {
                point();
                x * k + 1
            },
            5
        )
    )
    .unwrap();
    let pre = String::from("xyz");
    writeln!(
        out,
        "{}",
        call_once(Box::new(move |s| {
            point();
            (pre + &s).len()
        }))
    )
    .unwrap();
    writeln!(
        out,
        "{}",
        make(23).iter().fold(1u64, |a, f| {
            point();
            f(a)
        })
    )
    .unwrap();
    writeln!(
        out,
        "{} {}",
        fix(
            &|rec: &dyn Fn(u64) -> u64, n: u64| if n < 2 { 1 } else { n * rec(n - 1) },
            15
        ),
        fix(
            &|rec: &dyn Fn((u8, u8)) -> u32, (a, b): (u8, u8)| if a == 0 || b == 0 {
                1
            } else {
                rec((a - 1, b)) + rec((a, b - 1))
            },
            (5, 4)
        )
    )
    .unwrap();
    let mut trace = Vec::new();
    apply_n(6, |i| trace.push(i * i));
    writeln!(out, "{trace:?}").unwrap();
    let mut hits = 0;
    let mut hook = |n: u32| {
        point();
        hits += n;
        n.is_multiple_of(3)
    };
    let mut c = Counter {
        hook: Some(&mut hook),
        n: 0,
    };
    let b: Vec<bool> = (0..7).map(|_| c.bump()).collect();
    c.hook = None;
    c.bump();
    writeln!(out, "{b:?} {hits}").unwrap();
    for (name, op) in OPS.iter() {
        point();
        write!(out, "{name}={} ", op(1.5, 2.25)).unwrap();
    }
    writeln!(out).unwrap();
    let m = Memo {
        f: |m: &Memo, n| if n < 2 { n } else { rec(m, n) },
        seen: RefCell::new(BTreeMap::new()),
        hits: Cell::new(0),
    };
    fn rec(m: &Memo, n: u64) -> u64 {
        point();
        m.get(n - 1) + m.get(n - 2)
    }
    writeln!(out, "{} {}", m.get(60), m.hits.get()).unwrap();
    let shared = Rc::new(Cell::new(0));
    let s2 = Rc::clone(&shared);
    let h: Handler = Rc::new(RefCell::new(move |n: &str, log: &mut Vec<String>| {
        point();
        s2.set(s2.get() + 1);
        log.push(format!("{n}:{}", s2.get()))
    }));
    let ev = Events {
        handlers: vec![
            ("a".into(), h.clone()),
            ("b".into(), h.clone()),
            ("a".into(), h),
        ],
    };
    let mut log = vec![];
    for n in ["a", "b", "c", "a"] {
        ev.fire(n, &mut log)
    }
    writeln!(
        out,
        "{log:?} {} {}",
        shared.get(),
        Rc::strong_count(&shared)
    )
    .unwrap();
    let fs: [(&str, Box<dyn Fn(&[i32]) -> Option<i32>>); 3] = [
        (
            "min",
            Box::new(|v| {
                point();
                v.iter().copied().min()
            }),
        ),
        (
            "avg",
            Box::new(|v| {
                let n = v.len() as i32;
                point();
                v.iter().sum::<i32>().checked_div(n)
            }),
        ),
        ("2nd", Box::new(|v| v.get(1).copied())),
    ];
    for (n, f) in &fs {
        writeln!(out, "{n} {:?} {:?} {:?}", f(&[3, 1, 2]), f(&[]), f(&[9])).unwrap();
        point();
    }
    let mut stack: Vec<Box<dyn FnOnce(&mut i64)>> = vec![];
    for i in 0..9i64 {
        if i % 2 == 0 {
            stack.push(Box::new(move |x| {
                point();
                *x = *x * 10 + i
            }))
        } else {
            let v = vec![i; 4];
            stack.push(Box::new(move |x| {
                point();
                *x -= v.iter().sum::<i64>();
                drop(v);
                point();
            }))
        }
    }
    let mut x = 1;
    while let Some(f) = stack.pop() {
        f(&mut x)
    }
    writeln!(out, "{x}").unwrap();
    let curry = |a: i32| {
        move |b: i32| {
            move |c: i32| {
                point();
                a * b + c
            }
        }
    };
    writeln!(out, "{}", curry(3)(4)(5)).unwrap();
}
