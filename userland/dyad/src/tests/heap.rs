//! Memory of a node: what is asked for, and what is refused. Whether it is there only kernels can tell.

use super::*;
use crate::heap::{self, Placed};
use dyad_rt::heap::chosen;

fn refused<T>(result: Result<T>) -> Option<sys::Error> {
    result.err().and_then(|e| e.system())
}

#[test]
fn memory_is_wanted_while_something_runs() {
    let outcome = program!(&[X, A, A], {
        assert_eq!(heap::on(X)?.node(), id(0));
        let there = heap::on(A)?;
        assert_eq!(there.node(), id(1));
        let inner = heap::on(id(2))?;
        there.run(|| {
            assert_eq!(chosen(), Some(id(1)));
            inner.run(|| assert_eq!(chosen(), Some(id(2))));
            assert_eq!(chosen(), Some(id(1)));
        });
        assert_eq!(chosen(), None);
        let mut words = there.vec::<u64>(100);
        assert!(words.is_empty() && words.capacity() >= 100);
        words.push(1);
        let mut placed = Placed::new([1, 2, 3], A)?;
        placed[1] = 5;
        assert_eq!((*placed, placed.node()), ([1, 5, 3], id(1)));
        assert_eq!(*placed.into_box(), [1, 5, 3]);
        // The nearest one is meant.
        migrate_to(id(2)).await?;
        assert_eq!(heap::on(A)?.node(), id(2));
    });
    assert_eq!(outcome.code, 0);
}

#[test]
fn what_is_no_node_is_refused() {
    let outcome = program!(&[X], {
        assert_eq!(refused(heap::on(id(1))), Some(sys::Error::NoSuchNode));
        assert_eq!(refused(heap::on(A)), Some(sys::Error::NoIsa));
        assert_eq!(sys::map_anon_on(4096, id(3)), Err(sys::Error::NoSuchNode));
        assert!(sys::map_anon_on(4096, id(0)).is_ok());
    });
    assert_eq!(outcome.code, 0);
}
