//! Mean, standard deviation and confidence of values that were measured repeatedly.

use serde::Serialize;

/// Quantiles of Student's t distribution for two-sided intervals of 95 %, by degrees of freedom. What is between two lines has
/// the wider interval of the line before.
const T: [(usize, f64); 34] = [
    (1, 12.7062),
    (2, 4.3027),
    (3, 3.1824),
    (4, 2.7764),
    (5, 2.5706),
    (6, 2.4469),
    (7, 2.3646),
    (8, 2.3060),
    (9, 2.2622),
    (10, 2.2281),
    (11, 2.2010),
    (12, 2.1788),
    (13, 2.1604),
    (14, 2.1448),
    (15, 2.1314),
    (16, 2.1199),
    (17, 2.1098),
    (18, 2.1009),
    (19, 2.0930),
    (20, 2.0860),
    (21, 2.0796),
    (22, 2.0739),
    (23, 2.0687),
    (24, 2.0639),
    (25, 2.0595),
    (26, 2.0555),
    (27, 2.0518),
    (28, 2.0484),
    (29, 2.0452),
    (30, 2.0423),
    (40, 2.0211),
    (60, 2.0003),
    (120, 1.9799),
    (1000, 1.9623),
];

/// What repeated measurements say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many values there are.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, with n - 1; one value has none.
    pub sd: Option<f64>,
    /// Half of the width of the interval that has the true mean with a confidence of 95 %, by Student's t; one value has none.
    pub half_width_95: Option<f64>,
}

impl Summary {
    /// Of these values; nothing, if there are none.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let sd = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
        let half_width = |sd: f64| Some(quantile(n - 1)? * sd / (n as f64).sqrt());
        Some(Summary {
            n,
            mean,
            sd,
            half_width_95: sd.and_then(half_width),
        })
    }
}

/// The quantile for some degrees of freedom; 0 have none.
fn quantile(freedom: usize) -> Option<f64> {
    let line = T.iter().rev().find(|(least, _)| *least <= freedom);
    line.map(|(_, t)| *t)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-4 * b.abs()
    }

    /// By hand: of 10, 12, 14 the mean is 12, the squares are 4 + 0 + 4, so that the variance is 8 / 2 = 4. With 2 degrees of
    /// freedom t is 4.3027, and 4.3027 * 2 / sqrt 3 is 4.9683.
    #[test]
    fn an_interval_is_that_of_a_computation_by_hand() {
        let s = Summary::of(&[10.0, 12.0, 14.0]).unwrap();
        assert_eq!((s.n, s.mean, s.sd), (3, 12.0, Some(2.0)));
        assert!(close(s.half_width_95.unwrap(), 4.9683), "{s:?}");
        // Of 1 and 2: the deviation is sqrt 0.5, t is 12.7062, and 12.7062 * 0.70711 / 1.41421 is 6.3531.
        let s = Summary::of(&[2.0, 1.0]).unwrap();
        assert!(close(s.half_width_95.unwrap(), 6.3531), "{s:?}");
    }

    #[test]
    fn one_value_has_no_confidence() {
        let s = Summary::of(&[7.0]).unwrap();
        assert_eq!((s.n, s.mean, s.sd, s.half_width_95), (1, 7.0, None, None));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn equal_values_have_an_interval_without_width() {
        let s = Summary::of(&[3.0; 5]).unwrap();
        assert_eq!((s.sd, s.half_width_95), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn quantiles_fall_and_are_never_too_narrow() {
        assert_eq!(quantile(0), None);
        assert!(T.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1));
        assert_eq!((quantile(30), quantile(39)), (Some(2.0423), Some(2.0423)));
        assert_eq!((quantile(40), quantile(9999)), (Some(2.0211), Some(1.9623)));
    }
}
