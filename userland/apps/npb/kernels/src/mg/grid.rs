//! A cube of numbers with periodic borders.

use alloc::vec;
use alloc::vec::Vec;

/// `2^level` points in each direction, and a border of one point around them that repeats the
/// opposite side. The first coordinate is the one whose neighbours are next to each other.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    side: usize,
    points: Vec<f64>,
}

impl Grid {
    /// Zeros.
    pub(super) fn new(level: u32) -> Grid {
        let side = (1 << level) + 2;
        Grid {
            side,
            points: vec![0.0; side * side * side],
        }
    }

    /// Points in each direction, with both borders.
    #[inline(always)]
    pub(super) fn side(&self) -> usize {
        self.side
    }

    /// All points, border included.
    pub(super) fn points(&self) -> &[f64] {
        &self.points
    }

    /// Makes everything zero.
    pub(super) fn clear(&mut self) {
        self.points.fill(0.0);
    }

    /// The points with these second and third coordinates.
    #[inline(always)]
    pub(super) fn row(&self, y: usize, z: usize) -> &[f64] {
        &self.points[(z * self.side + y) * self.side..][..self.side]
    }

    /// A row of the grid, to be changed.
    #[inline(always)]
    pub(super) fn row_mut(&mut self, y: usize, z: usize) -> &mut [f64] {
        &mut self.points[(z * self.side + y) * self.side..][..self.side]
    }

    /// A point.
    #[cfg(test)]
    pub(super) fn at(&self, [x, y, z]: [usize; 3]) -> f64 {
        self.row(y, z)[x]
    }

    /// Changes a point.
    pub(super) fn set(&mut self, [x, y, z]: [usize; 3], value: f64) {
        self.row_mut(y, z)[x] = value;
    }

    /// The rows that are inside, from one end to the other.
    pub(super) fn inner_rows(&self) -> impl Iterator<Item = &[f64]> {
        let (n, inner) = (self.side, self.side - 2);
        let planes = self.points.chunks_exact(n * n).skip(1).take(inner);
        planes.flat_map(move |plane| {
            let rows = plane.chunks_exact(n).skip(1).take(inner);
            rows.map(move |row| &row[1..=inner])
        })
    }

    /// Gives the border the values of the opposite sides.
    pub(super) fn wrap(&mut self) {
        let (n, last) = (self.side, self.side - 2);
        let plane = n * n;
        for z in 1..=last {
            for y in 1..=last {
                let row = self.row_mut(y, z);
                row[0] = row[last];
                row[last + 1] = row[1];
            }
            let plane = &mut self.points[z * plane..][..plane];
            plane.copy_within(last * n..(last + 1) * n, 0);
            plane.copy_within(n..2 * n, (last + 1) * n);
        }
        self.points.copy_within(last * plane..(last + 1) * plane, 0);
        self.points
            .copy_within(plane..2 * plane, (last + 1) * plane);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_repeat_the_opposite_side() {
        let mut grid = Grid::new(2);
        let inside = |c: usize| 1 + (c + 3) % 4;
        for z in 1..5 {
            for y in 1..5 {
                for x in 1..5 {
                    grid.set([x, y, z], (x + 10 * y + 100 * z) as f64);
                }
            }
        }
        grid.wrap();
        for z in 0..6 {
            for y in 0..6 {
                for x in 0..6 {
                    let same = [inside(x), inside(y), inside(z)];
                    assert_eq!(grid.at([x, y, z]), grid.at(same), "{x} {y} {z}");
                }
            }
        }
        assert_eq!(grid.inner_rows().flatten().count(), 64);
        assert_eq!(grid.points().len(), 216);
    }
}
