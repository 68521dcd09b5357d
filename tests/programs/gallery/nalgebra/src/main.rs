//! nalgebra: decompositions, inverses, rotations and sparse sums, moving within closures for each element.
#![no_std]
#![no_main]

use gallery::*;
use nalgebra::{
    DMatrix, DVector, Matrix3, Matrix4, Point3, UnitQuaternion, Vector3, matrix, vector,
};

fn bits<'a>(all: impl IntoIterator<Item = &'a f64>) -> u64 {
    let bytes: Vec<u8> = all
        .into_iter()
        .flat_map(|v| v.to_bits().to_le_bytes())
        .collect();
    digest(&bytes)
}

fn random(seed: &mut Seeded, rows: usize, columns: usize) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |_, _| {
        hop_each(3);
        seed.unit() * 2.0 - 1.0
    })
}

fn decompose(n: usize, seed: &mut Seeded) -> Result<()> {
    let a = random(seed, n, n);
    let b = DVector::from_fn(n, |i, _| i as f64 - 2.5);
    let lacks = |what| Error::msg(format_args!("no {what} of {n}"));
    let lu = a.clone().lu();
    let x = lu.solve(&b).ok_or_else(|| lacks("solution"))?;
    say!(
        "{n}: determinant {:?}, solution {:016x}, residue {:016x}",
        lu.determinant(),
        bits(&x),
        bits(&(&a * &x - &b))
    );
    let (q, r) = a.clone().qr().unpack();
    say!("  QR {:016x} {:016x}", bits(&q), bits(&r));
    let inverse = a.clone().try_inverse().ok_or_else(|| lacks("inverse"))?;
    say!(
        "  inverse {:016x}, norm {:?}",
        bits(&inverse),
        inverse.norm()
    );
    let symmetric = &a * a.transpose() + DMatrix::identity(n, n);
    let cholesky = symmetric
        .clone()
        .cholesky()
        .ok_or_else(|| lacks("Cholesky factor"))?;
    say!("  Cholesky {:016x}", bits(&cholesky.l()));
    let eigen = symmetric.symmetric_eigen();
    say!(
        "  eigenvalues {:?} {:016x}",
        eigen.eigenvalues.max(),
        bits(&eigen.eigenvectors)
    );
    let svd = a.svd(true, true);
    say!("  singular values {:?}", svd.singular_values.as_slice());
    Ok(())
}

fn program() -> Result<()> {
    let mut seed = Seeded(9);
    for n in [2, 3, 5, 8, 12] {
        decompose(n, &mut seed)?;
    }
    let a = random(&mut seed, 9, 6);
    let scaled = a.map_with_location(|i, j, v| {
        hop_each(3);
        v * (i + 2 * j) as f64
    });
    let sums = scaled.fold(0.0, |sum, v| {
        hop_each(2);
        sum + v.abs()
    });
    say!(
        "{:016x} {sums:?} {:?}",
        bits(&scaled),
        scaled.column_mean().as_slice().iter().sum::<f64>()
    );
    say!("{}", scaled.rows(2, 3).columns(1, 3).into_owned());

    let turn = UnitQuaternion::from_euler_angles(0.3, -1.1, 2.0);
    let mut at = Point3::new(1.0, 2.0, 3.0);
    for _ in 0..20 {
        hop();
        at = turn * at + Vector3::new(0.1, 0.0, -0.2);
    }
    let (roll, pitch, yaw) = turn.euler_angles();
    say!(
        "{at:?} {roll:?} {pitch:?} {yaw:?} {:?}",
        turn.slerp(&UnitQuaternion::identity(), 0.25).angle()
    );
    let m: Matrix3<f64> = matrix![4.0, 1.0, 2.0; 1.0, 3.0, 0.5; 2.0, 0.5, 5.0];
    say!(
        "{:?} {:?}",
        (m * vector![1.0, 2.0, 3.0]).as_slice(),
        m.pow(5).trace()
    );
    let look = Matrix4::look_at_rh(&at, &Point3::origin(), &Vector3::y());
    say!(
        "{:016x} {:?}",
        bits(&look),
        look.transform_point(&Point3::new(1.0, 1.0, 1.0))
    );
    say!(
        "{:?}",
        random(&mut seed, 4, 4)
            .complex_eigenvalues()
            .iter()
            .map(|c| c.re + c.im.abs())
            .sum::<f64>()
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
