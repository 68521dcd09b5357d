//! Components that a node was changing when it died.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_core::host::crash;
use dyad_object::component::{Component, Entry};
use dyad_object::find;

use super::threads::sound;
use super::{Trio, cpu};

/// Node 1 dies before each change that `SetFaultHandler` makes. Until then no other node changes the component.
/// From then on others do, whether or not the node has been recovered, and no reader finds half a handler.
#[test]
fn a_handler_that_a_dead_node_was_setting_is_whole_and_can_be_set_anew() {
    let mut found = [0; 2];
    for changes in 0.. {
        let s = Trio::new();
        let object = s.object(Component::KIND);
        let handler = |n: u64| Entry {
            component: object,
            address: n,
            badge: n << 8,
        };
        let (mine, dying) = (s.machines[0].node(), s.machines[1].node());
        let component: &'static Component = find(mine, object, Component::KIND).unwrap();
        let set = |node, n| {
            let change = component.change(node, cpu(0))?;
            change.set_handler(Some(handler(n)));
            change.end();
            Ok::<(), Error>(())
        };
        let now = || component.parts(mine.words).fault_entry(mine.words).unwrap();
        set(mine, 1).unwrap();
        let whole = crash::after(changes, || set(dying, 2));
        // It may only be slow: its claim holds, once it has been made.
        if whole.is_none() && changes != 0 {
            assert_eq!(set(mine, 3), Err(Error::Again), "before change {changes}");
        }
        let left = now();
        let which = [1, 2].into_iter().position(|n| left == Some(handler(n)));
        let which = which.unwrap_or_else(|| panic!("{left:?} before change {changes}"));
        found[which] += 1;
        s.dies(1);
        if changes % 2 == 0 {
            s.recover(0);
        }
        assert_eq!(now(), left);
        assert_eq!(set(mine, 4), Ok(()), "before change {changes}");
        assert_eq!(now(), Some(handler(4)));
        s.recover(0);
        sound(&s);
        if whole.is_some() {
            break;
        }
    }
    // The claim, three words, the number of changes, the end of the claim.
    assert_eq!(found, [5, 2]);
}

/// A claim names the incarnation that has made it. A node that has come back has not made it.
#[test]
fn a_claim_of_an_earlier_incarnation_is_none() {
    let s = Trio::new();
    let node = s.machines[0].node();
    let object = s.object(Component::KIND);
    let component: &'static Component = find(node, object, Component::KIND).unwrap();
    let claim = |incarnation: u64| 1 << 63 | incarnation << 16 | 1;
    let change = || component.change(node, cpu(0)).map(|change| change.end());
    let now = u64::from(s.state(1).incarnation);
    component.changer.store(claim(now), Ordering::Relaxed);
    assert_eq!(change(), Err(Error::Again));
    component.changer.store(claim(now + 1), Ordering::Relaxed);
    assert_eq!(change(), Ok(()));
}
