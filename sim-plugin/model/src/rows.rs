//! Sets of keys, as caches keep them.
//!
//! A set is one or more rows of eight, each a line of the host, so that a set of up to eight ways is
//! never spread over two. Sets begin at powers of two of rows.
//!
//! Where in a row a key is looks random to the host, and a wrong guess costs more than looking at
//! all of it: nothing here branches on it.

use crate::cache::EMPTY;
use crate::config::CacheShape;

/// Keys in a row.
pub const ROW: usize = 8;

/// A line of the host.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Row(pub [u64; ROW]);

impl Row {
    /// The ways whose keys are equal to `key` under `identity`, as bits.
    #[inline(always)]
    pub fn matches(&self, key: u64, identity: u64) -> u32 {
        let mut ways = 0;
        for (way, slot) in self.0.iter().enumerate() {
            ways |= u32::from((slot ^ key) & identity == 0) << way;
        }
        ways
    }

    /// Puts a key first and moves those before way `way` by one. Returns what was in it.
    #[inline(always)]
    pub fn insert(&mut self, key: u64, way: usize) -> u64 {
        let old = self.0;
        self.0[0] = key;
        for i in 1..ROW {
            self.0[i] = if i <= way { old[i - 1] } else { old[i] };
        }
        old[way % ROW]
    }
}

/// Where the sets of a cache are.
#[derive(Clone, Copy, Debug)]
pub struct Sets {
    mask: u64,
    /// Log2 of the rows from a set to the next.
    stride: u32,
    /// Rows of a set that are in use.
    pub depth: usize,
    /// Ways of a set.
    pub ways: usize,
}

impl Sets {
    /// Those of a cache of this shape.
    ///
    /// # Panics
    ///
    /// If the number of sets is not a power of two, or the number of ways is not 1 to 64.
    pub fn new(shape: CacheShape) -> Sets {
        let sets = shape.sets();
        assert!(sets.is_power_of_two(), "{sets} sets");
        assert!((1..=64).contains(&shape.ways), "{} ways", shape.ways);
        let ways = shape.ways as usize;
        let depth = ways.div_ceil(ROW);
        Sets {
            mask: sets - 1,
            stride: depth.next_power_of_two().trailing_zeros(),
            depth,
            ways,
        }
    }

    /// Rows from a set to the next.
    pub const fn rows_per_set(self) -> usize {
        1 << self.stride
    }

    /// Rows of empty sets.
    pub fn empty(self) -> Box<[Row]> {
        vec![Row([EMPTY; ROW]); (self.mask as usize + 1) << self.stride].into_boxed_slice()
    }

    /// The first row of a line's set.
    #[inline(always)]
    pub fn start(self, line: u64) -> usize {
        ((line & self.mask) as usize) << self.stride
    }
}
