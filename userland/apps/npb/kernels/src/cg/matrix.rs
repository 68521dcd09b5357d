//! The matrix: the sum of weighted outer products of sparse random vectors, with something on the
//! diagonal. Stored by rows.

use alloc::vec;
use alloc::vec::Vec;

use super::Class;
use crate::rng::{MULTIPLIER, Randlc, SEED};

/// Reciprocal of the condition number the matrix is made for.
const RCOND: f64 = 0.1;
/// What each vector has at its own place.
const OWN: f64 = 0.5;

/// A sparse matrix.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    /// Where each row starts in the other two, and the end of the last.
    starts: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// A sparse vector: places and values, in the order in which they were drawn.
type Sparse = Vec<(u32, f64)>;

impl Matrix {
    /// The matrix of a class.
    pub(super) fn generate(class: Class) -> Matrix {
        let n = class.rows();
        let mut rng = Randlc::new(SEED, MULTIPLIER);
        // The official program draws one number for another purpose.
        rng.next_f64();
        let vectors: Vec<Sparse> = (0..n as u32)
            .map(|row| {
                let mut v = draw(&mut rng, n, class.nonzeros());
                match v.iter_mut().find(|(at, _)| *at == row) {
                    Some((_, value)) => *value = OWN,
                    None => v.push((row, OWN)),
                }
                v
            })
            .collect();
        Rows::new(&vectors).sum(&vectors, class)
    }

    /// Numbers that are not zero.
    pub(super) fn entries(&self) -> usize {
        self.values.len()
    }

    /// `out = self * v`.
    #[inline(never)]
    pub(super) fn multiply(&self, v: &[f64], out: &mut [f64]) {
        for (bounds, out) in self.starts.windows(2).zip(out) {
            let row = bounds[0] as usize..bounds[1] as usize;
            let entries = self.columns[row.clone()].iter().zip(&self.values[row]);
            *out = entries.fold(0.0, |sum, (&column, value)| {
                sum + value * v[column as usize]
            });
        }
    }

    /// Changes all numbers by little.
    #[cfg(test)]
    pub(super) fn disturb(&mut self) {
        self.values.iter_mut().for_each(|v| *v *= 1.0 + 1e-8);
    }
}

/// Draws a vector with `count` different places below `n`.
fn draw(rng: &mut Randlc, n: usize, count: usize) -> Sparse {
    // Places are drawn below a power of two, and again if there is no such place.
    let span = n.next_power_of_two() as f64;
    // One more comes for the vector's own place.
    let mut v = Sparse::with_capacity(count + 1);
    while v.len() < count {
        let value = rng.next_f64();
        let at = (span * rng.next_f64()) as u32;
        if (at as usize) < n && v.iter().all(|&(other, _)| other != at) {
            v.push((at, value));
        }
    }
    v
}

/// Rows while they grow: each has room for as many entries as it can get, and keeps them by column.
struct Rows {
    starts: Vec<usize>,
    lens: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl Rows {
    /// Empty rows, for the sum of the outer products of these vectors with themselves.
    fn new(vectors: &[Sparse]) -> Rows {
        let mut room = vec![0usize; vectors.len()];
        for v in vectors {
            for &(at, _) in v {
                room[at as usize] += v.len();
            }
        }
        let mut total = 0;
        let starts = room
            .iter()
            .map(|n| {
                total += n;
                total - n
            })
            .collect();
        Rows {
            starts,
            lens: vec![0; vectors.len()],
            columns: vec![0; total],
            values: vec![0.0; total],
        }
    }

    fn sum(mut self, vectors: &[Sparse], class: Class) -> Matrix {
        let mut weight = 1.0;
        for (i, v) in vectors.iter().enumerate() {
            for &(row, left) in v {
                let scale = weight * left;
                for &(column, right) in v {
                    let mut value = right * scale;
                    if row == column && row as usize == i {
                        value = value + RCOND - class.shift();
                    }
                    self.add(row as usize, column, value);
                }
            }
            weight *= class.ratio();
        }
        self.packed()
    }

    fn add(&mut self, row: usize, column: u32, value: f64) {
        let (start, len) = (self.starts[row], self.lens[row]);
        match self.columns[start..start + len].binary_search(&column) {
            Ok(k) => self.values[start + k] += value,
            Err(k) => {
                let (at, end) = (start + k, start + len);
                self.columns.copy_within(at..end, at + 1);
                self.values.copy_within(at..end, at + 1);
                (self.columns[at], self.values[at]) = (column, value);
                self.lens[row] += 1;
            }
        }
    }

    /// Without the room that was not needed.
    fn packed(self) -> Matrix {
        let entries = self.lens.iter().sum();
        let mut m = Matrix {
            starts: Vec::with_capacity(self.lens.len() + 1),
            columns: Vec::with_capacity(entries),
            values: Vec::with_capacity(entries),
        };
        m.starts.push(0);
        for (&start, &len) in self.starts.iter().zip(&self.lens) {
            m.columns
                .extend_from_slice(&self.columns[start..start + len]);
            m.values.extend_from_slice(&self.values[start..start + len]);
            m.starts.push(m.columns.len() as u32);
        }
        m
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_symmetric_and_its_rows_are_in_order() {
        let m = Matrix::generate(Class::S);
        let row = |i: usize| m.starts[i] as usize..m.starts[i + 1] as usize;
        let get = |i: usize, j: u32| {
            let k = m.columns[row(i)].binary_search(&j).ok()?;
            Some(m.values[row(i).start + k])
        };
        for i in 0..Class::S.rows() {
            let columns = &m.columns[row(i)];
            assert!(columns.windows(2).all(|w| w[0] < w[1]));
            assert!(columns.binary_search(&(i as u32)).is_ok(), "no diagonal");
            for (k, &j) in columns.iter().enumerate() {
                let (here, there) = (m.values[row(i).start + k], get(j as usize, i as u32));
                let there = there.expect("the other half is there");
                assert!((here - there).abs() <= here.abs() * 1e-12, "{i},{j}");
            }
        }
        assert!(get(0, 0).unwrap() < 0.0, "the shift is on the diagonal");
    }

    #[test]
    fn a_product_is_that_of_the_definition() {
        let m = Matrix {
            starts: vec![0, 2, 2, 3],
            columns: vec![0, 2, 1],
            values: vec![2.0, 3.0, 5.0],
        };
        let mut out = [9.0; 3];
        m.multiply(&[1.0, 10.0, 100.0], &mut out);
        assert_eq!(out, [302.0, 0.0, 50.0]);
    }
}
