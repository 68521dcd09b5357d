//! A list with a fixed capacity.

use core::hash::{Hash, Hasher};

/// Up to `N` items in order. Pushing to a full list gives the item back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<T, const N: usize> {
    items: [Option<T>; N],
    len: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    /// An empty list.
    pub const fn new() -> List<T, N> {
        List {
            items: [None; N],
            len: 0,
        }
    }

    /// Appends an item.
    ///
    /// # Errors
    ///
    /// The item, if the list is full.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        let Some(place) = self.items.get_mut(self.len) else {
            return Err(item);
        };
        *place = Some(item);
        self.len += 1;
        Ok(())
    }

    /// The first item.
    pub fn front(&self) -> Option<T> {
        self.items.first().copied().flatten()
    }

    /// Removes the first item.
    pub fn pop_front(&mut self) -> Option<T> {
        let first = self.items.first_mut()?.take()?;
        self.items[..self.len].rotate_left(1);
        self.len -= 1;
        Some(first)
    }

    /// Keeps the items for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let old = core::mem::take(self);
        for item in old.iter().filter(|i| keep(i)) {
            self.items[self.len] = Some(*item);
            self.len += 1;
        }
    }

    /// Number of items.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no item.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.items[..self.len].iter().flatten()
    }

    /// The items in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items[..self.len].iter_mut().flatten()
    }
}

impl<T: Copy, const N: usize> Default for List<T, N> {
    fn default() -> List<T, N> {
        List::new()
    }
}

impl<T: Hash, const N: usize> Hash for List<T, N> {
    /// Hashes the items that are there, not the room for more.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len.hash(state);
        for item in self.items.iter().flatten() {
            item.hash(state);
        }
    }
}
