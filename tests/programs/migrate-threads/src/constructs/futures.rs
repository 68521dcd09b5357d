//! Futures that a plain thread polls itself, tasks that exchange values, a generator as a state machine.
#![allow(clippy::type_complexity, reason = "written as it comes")]

use core::cell::{Cell, RefCell};
use core::fmt::Write;
use core::future::{Future, poll_fn, ready};
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;

use dyad::prelude::thread::*;

use crate::schedule::point;

/// Counts how often it is woken.
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        point();
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls until it is ready; its value, and how often it was woken.
fn block<F: Future>(f: F) -> (F::Output, u32) {
    let c = Arc::new(Count(AtomicU32::new(0)));
    let w = Waker::from(c.clone());
    let mut cx = Context::from_waker(&w);
    let mut f = pin!(f);
    loop {
        point();
        if let Poll::Ready(v) = f.as_mut().poll(&mut cx) {
            return (v, c.0.load(Ordering::Relaxed));
        }
    }
}

/// Is ready when polled for the Nth time.
async fn yield_n(n: u32) {
    for _ in 0..n {
        let mut once = false;
        poll_fn(|cx| {
            point();
            if once {
                Poll::Ready(())
            } else {
                once = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await
    }
}

/// Awaits itself in boxes.
async fn fib(n: u32) -> u64 {
    point();
    if n < 2 {
        n as u64
    } else {
        let a: Pin<Box<dyn Future<Output = u64>>> = Box::pin(fib(n - 1));
        let x = a.await;
        point();
        yield_n(n % 2).await;
        x + Box::pin(fib(n - 2)).await
    }
}

/// Holds references across what it awaits.
async fn holds(v: &mut [f64], s: &str) -> (f64, String) {
    let mut acc = 0.0;
    let mut t = String::new();
    for (i, x) in v.iter_mut().enumerate() {
        let before = *x;
        yield_n(1).await;
        *x *= 2.0;
        acc += before;
        point();
        write!(t, "{}{s}", i).unwrap();
    }
    (acc, t)
}

/// A channel between tasks of one thread.
struct Chan<T> {
    q: RefCell<VecDeque<T>>,
    closed: Cell<bool>,
}

impl<T> Chan<T> {
    async fn recv(&self) -> Option<T> {
        poll_fn(|cx| {
            point();
            match self.q.borrow_mut().pop_front() {
                Some(v) => Poll::Ready(Some(v)),
                None if self.closed.get() => Poll::Ready(None),
                None => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Polls tasks by turns.
struct Exec {
    tasks: Vec<(u32, Pin<Box<dyn Future<Output = ()>>>)>,
}

impl Exec {
    fn run(&mut self) -> u32 {
        let mut cx = Context::from_waker(Waker::noop());
        let mut polls = 0;
        while !self.tasks.is_empty() {
            let mut i = 0;
            while i < self.tasks.len() {
                polls += 1;
                point();
                if self.tasks[i].1.as_mut().poll(&mut cx).is_ready() {
                    drop(self.tasks.swap_remove(i));
                    point();
                } else {
                    i += 1
                }
            }
        }
        polls
    }
}

/// Factorials: a generator whose states are written out.
enum Gen {
    Start(u32),
    Loop { i: u32, n: u32, acc: u128 },
    End,
}

impl Iterator for Gen {
    type Item = u128;
    fn next(&mut self) -> Option<u128> {
        point();
        match core::mem::replace(self, Gen::End) {
            Gen::Start(n) => {
                *self = Gen::Loop { i: 1, n, acc: 1 };
                Some(0)
            }
            Gen::Loop { i, n, acc } if i < n => {
                let acc = acc * (i as u128 + 1);
                point();
                *self = Gen::Loop { i: i + 1, n, acc };
                Some(acc)
            }
            _ => None,
        }
    }
}

/// All of it.
pub fn run(out: &mut String) {
    writeln!(
        out,
        "{:?} {:?}",
        block(fib(9)),
        block(async {
            let x = ready(3).await;
            yield_n(x).await;
            x * 2
        })
    )
    .unwrap();
    let mut v = [1.5, 2.5, 3.5];
    let r = block(holds(&mut v, "-"));
    writeln!(out, "{r:?} {v:?}").unwrap();
    let c = Rc::new(Chan {
        q: RefCell::default(),
        closed: Cell::new(false),
    });
    let log = Rc::new(RefCell::new(vec![]));
    let mut ex = Exec { tasks: vec![] };
    for k in 0..3u32 {
        let (c, log) = (c.clone(), log.clone());
        ex.tasks.push((
            k,
            Box::pin(async move {
                while let Some(v) = c.recv().await {
                    point();
                    log.borrow_mut().push((k, v));
                    yield_n(k).await;
                }
                log.borrow_mut().push((k, String::from("end")))
            }),
        ));
    }
    {
        let c = c.clone();
        ex.tasks.push((
            9,
            Box::pin(async move {
                for i in 0..7 {
                    c.q.borrow_mut().push_back(format!("m{i}"));
                    yield_n(i % 3).await;
                    point();
                }
                c.closed.set(true)
            }),
        ));
    }
    let polls = ex.run();
    writeln!(out, "{polls} {:?}", log.borrow()).unwrap();
    writeln!(out, "{:?}", Gen::Start(20).collect::<Vec<_>>()).unwrap();
    let joined = block(async {
        let mut a = pin!(fib(5));
        let mut b = pin!(holds_owned(vec![1, 2, 3]));
        let (mut x, mut y) = (None, None);
        poll_fn(|cx| {
            point();
            if x.is_none()
                && let Poll::Ready(v) = a.as_mut().poll(cx)
            {
                x = Some(v)
            }
            if y.is_none()
                && let Poll::Ready(v) = b.as_mut().poll(cx)
            {
                y = Some(v)
            }
            if x.is_some() && y.is_some() {
                Poll::Ready(())
            } else {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
        (x, y)
    });
    writeln!(out, "{joined:?}").unwrap();
}

/// Holds an iterator across what it awaits.
async fn holds_owned(v: Vec<u8>) -> Vec<u8> {
    let mut o = vec![];
    for x in v {
        yield_n(x as u32).await;
        o.push(x * 2);
        point();
    }
    o
}
