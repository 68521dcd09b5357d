//! Destructors that contain points, in every order that there is: scopes, early returns, parts of values,
//! lists, boxes, closures, iterators left half done.
#![allow(clippy::type_complexity, reason = "written as it comes")]

use core::cell::RefCell;
use core::fmt::Write;
use core::mem::{self, ManuallyDrop};

use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::{Rc, Weak};

use dyad::prelude::*;

use crate::way::point;

type Log = Rc<RefCell<Vec<String>>>;

/// Writes its name and number to the log when it is dropped, with points around.
struct D(&'static str, u32, Log);

impl Drop for D {
    fn drop(&mut self) {
        point();
        let depth = Rc::strong_count(&self.2);
        point();
        self.2.borrow_mut().push(format!("{}{}", self.0, self.1));
        point();
        let _ = depth;
    }
}

/// Dropped as a whole before its fields, in their order.
struct Pair {
    b: D,
    a: D,
    n: [u64; 5],
}

impl Drop for Pair {
    fn drop(&mut self) {
        point();
        self.b
            .2
            .borrow_mut()
            .push(format!("pair{}", self.n.iter().sum::<u64>()));
        self.a.1 += 100;
    }
}

/// Calls a closure when it is dropped.
struct Guard<'a, F: FnMut(u32)> {
    f: F,
    n: &'a mut u32,
}

impl<F: FnMut(u32)> Drop for Guard<'_, F> {
    fn drop(&mut self) {
        *self.n += 1;
        point();
        (self.f)(*self.n);
        point();
        *self.n += 1
    }
}

#[allow(dead_code, reason = "they are dropped")]
enum E {
    One(D),
    Two { x: D, y: D },
    Three(Box<E>),
    None,
}

/// Leaves early, with values that live and an error that does.
fn early(n: u32, l: &Log) -> Result<u32, D> {
    let a = D("ea", n, l.clone());
    point();
    if n == 0 {
        return Err(D("er", n, l.clone()));
    }
    let b = D("eb", n, l.clone());
    let x = early(n - 1, l).map_err(|e| {
        point();
        l.borrow_mut().push(format!("seen {}", e.1));
        D("ew", n, l.clone())
    });
    let r = match x {
        Ok(v) => v,
        Err(e) if n < 3 => return Err(e),
        Err(_) => 7,
    };
    drop(a);
    point();
    let _c = b;
    Ok(r + 1)
}

/// What consumes its box and makes another one.
trait Thing {
    fn go(self: Box<Self>) -> Option<Box<dyn Thing>>;
}

impl Thing for D {
    fn go(self: Box<Self>) -> Option<Box<dyn Thing>> {
        point();
        if self.1 > 3 {
            None
        } else {
            Some(Box::new(D("t", self.1 + 1, self.2.clone())))
        }
    }
}

fn chain(n: u32, l: &Log) -> Option<Box<(D, Option<Box<(D, u128)>>)>> {
    if n == 0 {
        None
    } else {
        point();
        Some(Box::new((
            D("c", n, l.clone()),
            n.is_multiple_of(2)
                .then(|| Box::new((D("d", n, l.clone()), n as u128))),
        )))
    }
}

#[allow(dead_code, reason = "it is dropped")]
struct List {
    v: D,
    next: Option<Box<List>>,
}

/// All of it.
pub fn run(out: &mut String) {
    let l: Log = Log::default();
    {
        let _a = D("a", 1, l.clone());
        let b = D("b", 2, l.clone());
        let _ = D("now", 3, l.clone());
        let c = D("c", 4, l.clone());
        point();
        drop(b);
        let _d = (D("d", 5, l.clone()), c);
    }
    {
        let _p = Pair {
            b: D("pb", 1, l.clone()),
            a: D("pa", 2, l.clone()),
            n: [1, 2, 3, 4, 5],
        };
        point();
    }
    {
        let mut v: Vec<D> = (0..6).map(|i| D("v", i, l.clone())).collect();
        v.truncate(4);
        v.retain(|d| {
            point();
            d.1 % 2 == 0
        });
        v.insert(1, D("vi", 9, l.clone()));
        let x = v.remove(0);
        v.push(D("vp", 8, l.clone()));
        drop(v);
        point();
        drop(x);
    }
    let mut n = 0u32;
    let mut seen = vec![];
    for k in 0..4 {
        let l2 = l.clone();
        let _g = Guard {
            f: |x| {
                seen.push(x);
                l2.borrow_mut().push(format!("g{x}"));
                point();
            },
            n: &mut n,
        };
        if k == 1 {
            continue;
        }
        if k == 3 {
            break;
        }
        point();
    }
    writeln!(out, "{n} {seen:?}").unwrap();
    for k in 0..6 {
        writeln!(out, "{:?}", early(k, &l).map_err(|e| e.1)).unwrap();
    }
    {
        let mut e = E::Three(Box::new(E::Two {
            x: D("x", 1, l.clone()),
            y: D("y", 2, l.clone()),
        }));
        point();
        if let E::Three(inner) = &mut e {
            let old = mem::replace(&mut **inner, E::One(D("one", 1, l.clone())));
            point();
            if let E::Two { y, .. } = old {
                drop(y);
                l.borrow_mut().push("after y".into())
            }
        }
        e = match e {
            E::Three(b) => *b,
            other => other,
        };
        point();
        let _ = mem::replace(&mut e, E::None);
    }
    {
        let mut t: Option<Box<dyn Thing>> = Some(Box::new(D("t", 0, l.clone())));
        while let Some(x) = t.take() {
            t = x.go();
            point();
        }
    }
    for i in 0..4 {
        drop(chain(i, &l));
    }
    {
        let mut list: Option<Box<List>> = None;
        for i in 0..12 {
            list = Some(Box::new(List {
                v: D("l", i, l.clone()),
                next: list.take(),
            }));
        }
        let mut cur = &mut list;
        for _ in 0..5 {
            cur = &mut cur.as_mut().unwrap().next;
            point();
        }
        let tail = cur.take();
        drop(list);
        l.borrow_mut().push("--".into());
        drop(tail);
    }
    {
        let mut m: BTreeMap<u32, D> = (0..9).map(|i| (i * 5 % 9, D("m", i, l.clone()))).collect();
        m.insert(3, D("m3", 0, l.clone()));
        m.remove(&1);
        let mut it = m.into_iter();
        it.next();
        it.next_back();
        point();
        drop(it);
    }
    {
        let mut q: VecDeque<Rc<D>> = (0..5).map(|i| Rc::new(D("q", i, l.clone()))).collect();
        let keep = q[2].clone();
        let w: Weak<D> = Rc::downgrade(&q[3]);
        q.clear();
        l.borrow_mut().push(format!("w{}", w.upgrade().is_none()));
        point();
        drop(keep);
    }
    {
        let mut m = ManuallyDrop::new(D("man", 1, l.clone()));
        point();
        m.1 = 7;
        let mut u = [const { None }; 3];
        for (i, s) in u.iter_mut().enumerate() {
            *s = Some(D("u", i as u32, l.clone()));
            point();
        }
        let arr: [D; 3] = u.map(Option::unwrap);
        let [a, _, c] = arr;
        drop(c);
        point();
        drop(a);
        drop(ManuallyDrop::into_inner(m));
    }
    {
        let mut s = D("s", 1, l.clone());
        drop(mem::replace(&mut s, D("s", 2, l.clone())));
        point();
        let mut o = Some(D("o", 1, l.clone()));
        o = o
            .filter(|d| {
                point();
                d.1 == 2
            })
            .or_else(|| {
                point();
                Some(D("o", 3, l.clone()))
            });
        let _x = o.replace(D("o", 4, l.clone()));
        mem::swap(&mut s, o.as_mut().unwrap());
    }
    let f: Box<dyn FnOnce() -> u32> = {
        let d = D("cl", 1, l.clone());
        Box::new(move || {
            point();
            d.1
        })
    };
    writeln!(out, "{}", f()).unwrap();
    let arr: [D; 4] = core::array::from_fn(|i| {
        point();
        D("arr", i as u32, l.clone())
    });
    let s: u32 = arr
        .into_iter()
        .skip(1)
        .map(|d| {
            point();
            d.1
        })
        .sum();
    writeln!(
        out,
        "{s} {}\n{}",
        Rc::strong_count(&l),
        l.borrow().join(" ")
    )
    .unwrap();
}
