//! Swapping and taking, cells, counted references, atomics, copying on write, options and results.

use core::cell::{Cell, LazyCell, OnceCell, RefCell};
use core::fmt::Write;
use core::mem;
use core::num::{NonZeroU32, Saturating, Wrapping};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicUsize, Ordering::*};

use alloc::borrow::Cow;
use alloc::rc::Rc;
use alloc::sync::Arc;

use dyad::prelude::thread::*;

use crate::schedule::point;

static N: AtomicUsize = AtomicUsize::new(0);
static FLAG: AtomicBool = AtomicBool::new(false);
static B: AtomicU8 = AtomicU8::new(3);
static I: AtomicI64 = AtomicI64::new(-5);
static SCRATCH: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];

/// Accounts, changed through shared references.
struct Bank {
    acc: RefCell<Vec<(String, Cell<i64>)>>,
    log: RefCell<String>,
    total: OnceCell<i64>,
}

impl Bank {
    fn moved(&self, a: usize, b: usize, n: i64) -> Result<i64, String> {
        let acc = self.acc.borrow();
        point();
        let (x, y) = (
            acc.get(a).ok_or_else(|| {
                point();
                format!("no {a}")
            })?,
            acc.get(b).ok_or("no target")?,
        );
        let rest =
            x.1.get()
                .checked_sub(n)
                .filter(|r| {
                    point();
                    *r >= 0
                })
                .ok_or_else(|| format!("{} lacks {}", x.0, n - x.1.get()))?;
        x.1.set(rest);
        point();
        y.1.set(y.1.get() + n);
        write!(self.log.borrow_mut(), "{}->{} {n};", x.0, y.0).map_err(|e| e.to_string())?;
        Ok(rest)
    }

    fn total(&self) -> i64 {
        *self.total.get_or_init(|| {
            point();
            self.acc
                .borrow()
                .iter()
                .map(|a| {
                    point();
                    a.1.get()
                })
                .sum()
        })
    }
}

/// Is copied only if it has to be changed.
fn norm(s: &str) -> Cow<'_, str> {
    point();
    if s.contains(' ') {
        Cow::Owned(
            s.split(' ')
                .filter(|w| {
                    point();
                    !w.is_empty()
                })
                .collect::<Vec<_>>()
                .join("_"),
        )
    } else {
        s.into()
    }
}

/// Most of what options can do.
fn opt(x: Option<i32>, y: Option<i32>) -> Option<String> {
    let z = x
        .zip(y)
        .map(|(a, b)| {
            point();
            a * b
        })
        .filter(|p| {
            point();
            *p != 6
        })
        .or_else(|| {
            point();
            x.xor(y).map(|v| -v)
        })?;
    let w = x
        .and_then(|v| {
            point();
            v.checked_sub(y.unwrap_or_default())
        })
        .map_or_else(
            || {
                point();
                "none".to_string()
            },
            |v| v.to_string(),
        );
    Some(format!("{z}/{w}"))
}

/// Errors of several types.
fn res(s: &str) -> Result<u8, Box<dyn core::error::Error + Send + Sync>> {
    let n: i32 = s.trim().parse()?;
    point();
    let n = u8::try_from(n)?;
    point();
    if n == 13 {
        Err("unlucky")?
    }
    core::str::from_utf8(&[n])?;
    Ok(NonZeroU32::new(n as u32)
        .ok_or_else(|| {
            point();
            format!("zero {s}")
        })?
        .get() as u8)
}

/// Is built step by step.
#[derive(Default, Debug, Clone, PartialEq)]
struct Cfg {
    name: String,
    depth: Option<u32>,
    tags: Vec<&'static str>,
    sub: Option<Box<Cfg>>,
}

impl Cfg {
    fn name(mut self, n: impl Into<String>) -> Self {
        point();
        self.name = n.into();
        self
    }

    fn tag(mut self, t: &'static str) -> Self {
        self.tags.push(t);
        point();
        self
    }

    fn sub(self, f: impl FnOnce(Cfg) -> Cfg) -> Self {
        point();
        Cfg {
            sub: Some(Box::new(f(Cfg::default()))),
            ..self
        }
    }

    fn depth(mut self, d: u32) -> Self {
        self.depth.replace(d);
        point();
        self
    }
}

/// All of it.
pub fn run(out: &mut String) {
    let (mut a, mut b) = ([1u64; 20], [2u64; 20]);
    for i in 0..6 {
        point();
        mem::swap(&mut a, &mut b);
        a[i] = 7;
        let c = mem::replace(&mut b, a);
        point();
        b[i + 1] ^= c[0];
    }
    writeln!(out, "{a:?} {b:?}").unwrap();
    let mut s = vec![String::from("x")];
    let t = mem::take(&mut s);
    point();
    s.extend(t.iter().map(|x| x.repeat(3)));
    let u = mem::take(&mut s[0]);
    writeln!(out, "{s:?} {t:?} {u}").unwrap();
    let bank = Bank {
        acc: RefCell::new(vec![
            ("a".into(), Cell::new(10)),
            ("b".into(), Cell::new(5)),
        ]),
        log: RefCell::default(),
        total: OnceCell::new(),
    };
    for (x, y, n) in [
        (0, 1, 3),
        (1, 0, 9),
        (1, 2, 1),
        (3, 0, 1),
        (0, 0, 2),
        (1, 0, 8),
    ] {
        writeln!(out, "{:?}", bank.moved(x, y, n)).unwrap();
    }
    bank.acc.borrow_mut().push(("c".into(), Cell::new(100)));
    writeln!(out, "{} {} {:?}", bank.total(), bank.log.borrow(), bank.acc).unwrap();
    writeln!(
        out,
        "{} {} {:?}",
        norm("a b  c"),
        norm("abc"),
        matches!(norm("q"), Cow::Borrowed(_))
    )
    .unwrap();
    for (x, y) in [
        (Some(1), Some(5)),
        (Some(2), Some(3)),
        (None, Some(4)),
        (Some(-7), None),
        (None, None),
        (Some(i32::MIN), Some(1)),
    ] {
        writeln!(
            out,
            "{:?}",
            if x == Some(i32::MIN) { None } else { opt(x, y) }
        )
        .unwrap();
    }
    for t in ["1", " 127 ", "x", "300", "-1", "13", "0", "200", ""] {
        match res(t) {
            Ok(n) => writeln!(out, "{n}"),
            Err(e) => writeln!(out, "{t}: {e}"),
        }
        .unwrap();
    }
    let c = Cfg::default()
        .name("top")
        .tag("a")
        .sub(|c| {
            c.name(format!("s{}", 1)).depth(3).sub(|c| {
                point();
                c.tag("deep")
            })
        })
        .tag("b");
    let d = c.clone();
    writeln!(out, "{c:?} {}", c == d).unwrap();
    let lazy = LazyCell::new(|| {
        point();
        vec![1, 2, 3]
    });
    let rc = Rc::new(RefCell::new(5));
    let rc2 = rc.clone();
    {
        let mut g = rc.borrow_mut();
        point();
        *g += lazy.len();
        point();
        assert!(rc2.try_borrow().is_err());
    }
    writeln!(out, "{} {:?}", rc2.borrow(), Rc::try_unwrap(rc).is_err()).unwrap();
    let mut arc = Arc::new([1u8; 4]);
    let other = arc.clone();
    Arc::make_mut(&mut arc)[2] = 9;
    point();
    let st: Arc<str> = Arc::from("shared");
    let w = Arc::downgrade(&other);
    drop(other);
    writeln!(out, "{arc:?} {st} {:?}", w.upgrade()).unwrap();
    N.store(0, Relaxed);
    B.store(3, SeqCst);
    I.store(-5, SeqCst);
    for i in 0..20 {
        let n = N.fetch_add(i, AcqRel);
        point();
        FLAG.fetch_xor(n.is_multiple_of(2), SeqCst);
        let _ = B.fetch_update(SeqCst, Relaxed, |b| {
            point();
            b.checked_mul(3)
        });
        I.fetch_max(n as i64 - 50, SeqCst);
        point();
        let _ = I.compare_exchange(3, -3, SeqCst, Relaxed);
    }
    writeln!(
        out,
        "{} {} {} {}",
        N.load(Acquire),
        FLAG.load(SeqCst),
        B.swap(1, SeqCst),
        I.fetch_and(0xff, SeqCst)
    )
    .unwrap();
    FLAG.store(false, SeqCst);
    let two = [Cell::new(5u32), Cell::new(9)];
    let p = Cell::new(&two[0]);
    point();
    p.get().set(p.get().get() + 1);
    let q = p.replace(&two[1]);
    point();
    writeln!(out, "{} {}", q.get(), p.get().get()).unwrap();
    for (i, s) in SCRATCH.iter().enumerate() {
        s.store(i as u32 * 3, Relaxed);
        point();
        if i > 0 {
            s.fetch_add(SCRATCH[i - 1].load(Relaxed), Relaxed);
        }
    }
    writeln!(out, "{SCRATCH:?}").unwrap();
    let mut w = Wrapping(250u8);
    let mut sa = Saturating(-120i8);
    for i in 0..9 {
        w += Wrapping(i);
        sa -= Saturating(3);
        point();
        w *= 3;
    }
    writeln!(out, "{w} {sa}").unwrap();
    let v: Vec<u32> = vec![1, 2, 3];
    let b: Box<[u32]> = v.into_boxed_slice();
    point();
    let rc: Rc<[u32]> = Rc::from(b);
    let st = Box::<str>::from("boxed");
    writeln!(
        out,
        "{rc:?} {st} {}",
        String::from_utf8_lossy(&[72, 105, 255])
    )
    .unwrap();
}
