//! ndarray: products, folds, slices and broadcasts, moving within closures for each element.
#![no_std]
#![no_main]

use gallery::*;
use ndarray::{Array, Array1, Array2, Array3, Axis, Zip, array, concatenate, s, stack};

fn bits<'a>(all: impl IntoIterator<Item = &'a f64>) -> u64 {
    let bytes: Vec<u8> = all
        .into_iter()
        .flat_map(|v| v.to_bits().to_le_bytes())
        .collect();
    digest(&bytes)
}

fn program() -> Result<()> {
    let mut seed = Seeded(10);
    let a = Array2::from_shape_fn((17, 23), |_| {
        hop_each(5);
        seed.unit() * 4.0 - 2.0
    });
    let b = Array2::from_shape_fn((23, 11), |(i, j)| (i * j % 7) as f64 / 3.0);
    let product = a.dot(&b);
    say!(
        "{:?} {:016x} {:?}",
        product.dim(),
        bits(&product),
        product.sum()
    );
    say!(
        "{:?}",
        product.sum_axis(Axis(0)).mapv(|v| {
            hop();
            (v * 100.0) as i64
        })
    );
    say!("{:?}", product.mean_axis(Axis(1)).map(|m| bits(&m)));

    let lanes = product.map_axis(Axis(1), |lane| {
        hop();
        lane.iter()
            .copied()
            .fold(f64::NEG_INFINITY, |m, v| if v > m { v } else { m })
    });
    say!("{lanes:.4}");
    let mut cube: Array3<i64> =
        Array::from_shape_fn((4, 5, 6), |(i, j, k)| (i * 100 + j * 10 + k) as i64);
    cube.slice_mut(s![1..3, ..;2, ..]).mapv_inplace(|v| {
        hop_each(2);
        -v
    });
    cube.swap_axes(0, 2);
    say!("{:?} {}", cube.shape(), cube.slice(s![1..3, 2, ..]));
    say!("{}", cube.fold_axis(Axis(1), 0, |sum, v| sum + v));
    let parts: Vec<i64> = cube.axis_chunks_iter(Axis(0), 4).map(|c| c.sum()).collect();
    say!(
        "{parts:?} {:?}",
        cube.exact_chunks((2, 1, 2))
            .into_iter()
            .map(|c| c[[1, 0, 1]])
            .max()
    );

    let row = Array1::from_iter((0..23).map(|n| f64::from(n) / 22.0));
    let shifted = &a + &row - 0.5;
    let mut out = Array2::zeros(a.raw_dim());
    Zip::from(&mut out)
        .and(&a)
        .and_broadcast(&row)
        .for_each(|o, x, r| {
            hop_each(2);
            *o = x * r;
        });
    say!(
        "{:016x} {:016x} {:?}",
        bits(&shifted),
        bits(&out),
        (&out * &out).sum()
    );
    let windows = out.windows((3, 3)).into_iter().map(|w| {
        hop_each(3);
        w.sum()
    });
    let windows: Vec<f64> = windows.collect();
    say!("{} windows {:016x}", windows.len(), bits(&windows));
    let (x, y) = (array![[1, 2], [3, 4]], array![[5, 6], [7, 8]]);
    say!(
        "{:?} {:?}",
        concatenate(Axis(1), &[x.view(), y.view()]).map_err(failed)?,
        stack(Axis(0), &[x.view(), y.t()]).map_err(failed)?.dim()
    );
    say!(
        "{:?}",
        x.clone()
            .into_shape_with_order((3, 3))
            .map_err(|e| e.to_string())
    );
    let mut sorted: Vec<i64> = x.dot(&y).into_iter().collect();
    sorted.sort_unstable();
    say!(
        "{sorted:?} {}",
        Array2::<f64>::eye(3).dot(&array![1.0, 2.0, 3.0])
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
