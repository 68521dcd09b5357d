//! Trait objects, generics, supertraits, `Any`, weak references, visitors, plugins.

use core::any::{Any, TypeId};
use core::cell::RefCell;
use core::fmt::{self, Debug, Display, Write};
use core::marker::PhantomData;

use alloc::rc::{Rc, Weak};
use alloc::sync::Arc;

use dyad::prelude::thread::*;

use crate::schedule::point;

trait Named {
    fn name(&self) -> String {
        point();
        "anon".to_string()
    }
}

/// With a constant: not for objects.
trait Shape: Named + Debug + Send + Sync {
    const SIDES: u32;
    fn area(&self) -> f64;
    fn scale(&mut self, k: f64);
    fn boxed(&self) -> Box<dyn Shape2>;
}

/// For objects.
trait Shape2: Send + Sync {
    fn area(&self) -> f64;
    fn grow(&mut self, by: &dyn Fn(f64) -> f64);
    fn as_any(&self) -> &dyn Any;
    fn describe(&self, f: &mut dyn Write) -> fmt::Result {
        point();
        write!(f, "[{:.2}]", self.area())
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Circle(f64);

#[derive(Debug, Clone)]
struct Poly<const N: usize> {
    side: f64,
    label: Option<Arc<str>>,
}

impl Named for Circle {
    fn name(&self) -> String {
        format!("circle{}", self.0)
    }
}

impl<const N: usize> Named for Poly<N> {}

impl Shape2 for Circle {
    fn area(&self) -> f64 {
        point();
        3.25 * self.0 * self.0
    }

    fn grow(&mut self, by: &dyn Fn(f64) -> f64) {
        point();
        self.0 = by(self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<const N: usize> Shape2 for Poly<N> {
    fn area(&self) -> f64 {
        point();
        self.side * self.side * N as f64 / 4.0
    }

    fn grow(&mut self, by: &dyn Fn(f64) -> f64) {
        self.side = by(by(self.side));
        point();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn describe(&self, f: &mut dyn Write) -> fmt::Result {
        point();
        write!(f, "{N}-gon {}", self.label.as_deref().unwrap_or("-"))
    }
}

impl Shape for Circle {
    const SIDES: u32 = 0;
    fn area(&self) -> f64 {
        Shape2::area(self)
    }

    fn scale(&mut self, k: f64) {
        self.0 *= k
    }

    fn boxed(&self) -> Box<dyn Shape2> {
        Box::new(self.clone())
    }
}

impl<const N: usize> Shape for Poly<N> {
    const SIDES: u32 = N as u32;
    fn area(&self) -> f64 {
        point();
        Shape2::area(self)
    }

    fn scale(&mut self, k: f64) {
        self.side *= k
    }

    fn boxed(&self) -> Box<dyn Shape2> {
        point();
        Box::new(self.clone())
    }
}

fn total<S: Shape>(all: &mut [S]) -> (f64, u32) {
    all.iter_mut().fold((0.0, 0), |(a, n), s| {
        point();
        s.scale(1.5);
        (a + Shape::area(s), n + S::SIDES)
    })
}

/// A node of a tree that knows its parent weakly.
struct Node {
    name: String,
    parent: RefCell<Weak<Node>>,
    kids: RefCell<Vec<Rc<Node>>>,
}

impl Node {
    fn new(name: &str) -> Rc<Node> {
        point();
        Rc::new(Node {
            name: name.into(),
            parent: RefCell::new(Weak::new()),
            kids: RefCell::default(),
        })
    }

    fn add(self: &Rc<Node>, kid: Rc<Node>) {
        *kid.parent.borrow_mut() = Rc::downgrade(self);
        point();
        self.kids.borrow_mut().push(kid)
    }

    fn path(&self) -> String {
        point();
        match self.parent.borrow().upgrade() {
            Some(p) => format!("{}/{}", p.path(), self.name),
            None => self.name.clone(),
        }
    }

    fn visit(self: &Rc<Node>, v: &mut dyn Visitor) {
        v.enter(self);
        for k in self.kids.borrow().iter() {
            point();
            k.visit(v)
        }
        v.leave(self)
    }
}

trait Visitor {
    fn enter(&mut self, n: &Rc<Node>);
    fn leave(&mut self, _n: &Rc<Node>) {}
}

struct Printer {
    depth: usize,
    out: String,
}

impl Visitor for Printer {
    fn enter(&mut self, n: &Rc<Node>) {
        point();
        let _ = writeln!(
            self.out,
            "{:w$}{}({})",
            "",
            n.name,
            Rc::strong_count(n),
            w = self.depth
        );
        self.depth += 2
    }

    fn leave(&mut self, _: &Rc<Node>) {
        self.depth -= 2
    }
}

struct Depth(usize, usize);

impl Visitor for Depth {
    fn enter(&mut self, _: &Rc<Node>) {
        self.0 += 1;
        point();
        self.1 = self.1.max(self.0)
    }

    fn leave(&mut self, _: &Rc<Node>) {
        point();
        self.0 -= 1
    }
}

/// A length that is printed in the unit of its type.
struct Meters<T>(f64, PhantomData<T>);

trait Unit {
    const K: f64;
    const N: &'static str;
}

struct Km;

struct Cm;

impl Unit for Km {
    const K: f64 = 1000.0;
    const N: &'static str = "km";
}

impl Unit for Cm {
    const K: f64 = 0.01;
    const N: &'static str = "cm";
}

impl<T: Unit> Display for Meters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0 / T::K, T::N)
    }
}

/// What is known of something of any type.
fn kind(x: &dyn Any) -> &'static str {
    point();
    if x.is::<u32>() {
        "u32"
    } else if x.downcast_ref::<String>().is_some_and(|s| {
        point();
        s.len() > 3
    }) {
        "long string"
    } else if x.type_id() == TypeId::of::<&str>() {
        "str"
    } else {
        "?"
    }
}

/// Any closure is one, and a chain of them.
trait Plugin {
    fn run(&mut self, x: i128) -> i128;
}

impl<F: FnMut(i128) -> i128> Plugin for F {
    fn run(&mut self, x: i128) -> i128 {
        point();
        self(x)
    }
}

struct Chain(Vec<Box<dyn Plugin>>);

impl Plugin for Chain {
    fn run(&mut self, x: i128) -> i128 {
        self.0.iter_mut().fold(x, |x, p| {
            point();
            p.run(x)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Suit {
    A,
    B(u8),
    C { x: i16 },
}

/// Values that can be joined.
trait Monoid {
    fn zero() -> Self;
    fn op(&self, o: &Self) -> Self;
}

impl Monoid for String {
    fn zero() -> Self {
        String::new()
    }

    fn op(&self, o: &Self) -> Self {
        point();
        format!("{self}{o}")
    }
}

impl Monoid for (i32, f32) {
    fn zero() -> Self {
        (0, 1.0)
    }

    fn op(&self, o: &Self) -> Self {
        point();
        (self.0 + o.0, self.1 * o.1)
    }
}

impl<T: Monoid> Monoid for Option<T> {
    fn zero() -> Self {
        None
    }

    fn op(&self, o: &Self) -> Self {
        match (self, o) {
            (Some(a), Some(b)) => Some(a.op(b)),
            (Some(a), None) | (None, Some(a)) => {
                point();
                Some(a.op(&T::zero()))
            }
            _ => None,
        }
    }
}

fn mconcat<M: Monoid>(all: &[M]) -> M {
    match all {
        [] => M::zero(),
        [one] => M::zero().op(one),
        _ => {
            let (a, b) = all.split_at(all.len() / 2);
            mconcat(a).op(&mconcat(b))
        }
    }
}

/// All of it.
pub fn run(out: &mut String) {
    let mut v: Vec<Box<dyn Shape2>> = vec![
        Box::new(Circle(1.0)),
        Box::new(Poly::<3> {
            side: 2.0,
            label: None,
        }),
        Box::new(Poly::<6> {
            side: 1.0,
            label: Some("hex".into()),
        }),
        Circle(0.5).boxed(),
    ];
    for (i, s) in v.iter_mut().enumerate() {
        let k = i as f64;
        s.grow(&|x| {
            point();
            x * 1.25 + k
        });
    }
    for s in &v {
        s.describe(out).unwrap();
        write!(
            out,
            " {} {:?}; ",
            s.area(),
            s.as_any().downcast_ref::<Circle>()
        )
        .unwrap();
    }
    v.sort_by(|a, b| {
        point();
        a.area().partial_cmp(&b.area()).unwrap()
    });
    writeln!(out, "{:?}", v.iter().map(|s| s.area()).collect::<Vec<_>>()).unwrap();
    writeln!(
        out,
        "{:?} {:?}",
        total(&mut [Circle(1.0), Circle(2.0)]),
        total(&mut [Poly::<5> {
            side: 1.0,
            label: None
        }])
    )
    .unwrap();
    let shapes: [&dyn Shape3; 2] = [
        &Circle(3.0),
        &Poly::<4> {
            side: 0.5,
            label: None,
        },
    ];
    for s in shapes {
        write!(out, "{} {} ", s.name3(), s.twice()).unwrap();
    }
    let root = Node::new("root");
    for i in 0..3 {
        let k = Node::new(&format!("k{i}"));
        for j in 0..i {
            k.add(Node::new(&format!("l{j}")))
        }
        root.add(k)
    }
    let mut p = Printer {
        depth: 0,
        out: String::new(),
    };
    root.visit(&mut p);
    let mut d = Depth(0, 0);
    root.visit(&mut d);
    writeln!(
        out,
        "\n{}{} {}",
        p.out,
        d.1,
        root.kids.borrow()[2].kids.borrow()[1].path()
    )
    .unwrap();
    let orphan = {
        let r = Node::new("gone");
        let k = Node::new("kid");
        r.add(k.clone());
        point();
        k
    };
    writeln!(
        out,
        "{} {}",
        orphan.path(),
        orphan.parent.borrow().upgrade().is_none()
    )
    .unwrap();
    writeln!(
        out,
        "{} {}",
        Meters::<Km>(1500.0, PhantomData),
        Meters::<Cm>(1.5, PhantomData)
    )
    .unwrap();
    let anys: Vec<Box<dyn Any>> = vec![
        Box::new(3u32),
        Box::new("s"),
        Box::new(String::from("long")),
        Box::new(1u8),
    ];
    writeln!(
        out,
        "{:?}",
        anys.iter().map(|a| kind(&**a)).collect::<Vec<_>>()
    )
    .unwrap();
    let mut n = 0;
    let mut c = Chain(vec![
        Box::new(|x| x * 3),
        Box::new(move |x| {
            n += 1;
            point();
            x + n
        }),
        Box::new(Chain(vec![
            Box::new(|x: i128| {
                point();
                x << 70
            }),
            Box::new(|x: i128| x / 7),
        ])),
    ]);
    writeln!(out, "{} {}", c.run(5), c.run(-5)).unwrap();
    let mut s = vec![
        Suit::C { x: -1 },
        Suit::B(3),
        Suit::A,
        Suit::B(1),
        Suit::C { x: -5 },
    ];
    s.sort_by(|a, b| {
        point();
        b.cmp(a)
    });
    writeln!(out, "{s:?}").unwrap();
    writeln!(
        out,
        "{:?} {:?} {:?}",
        mconcat(&["a".to_string(), "b".into(), "c".into()]),
        mconcat(&[(1, 2.0f32), (3, 4.5), (5, 0.1)]),
        mconcat(&[None, Some("x".to_string()), None, Some("y".into())])
    )
    .unwrap();
}

/// What every shape that can be copied has.
trait Shape3 {
    fn name3(&self) -> String;
    fn twice(&self) -> f64;
}

impl<T: Shape + Clone> Shape3 for T {
    fn name3(&self) -> String {
        point();
        self.name()
    }

    fn twice(&self) -> f64 {
        point();
        let mut c = self.clone();
        c.scale(2.0);
        Shape::area(&c)
    }
}
