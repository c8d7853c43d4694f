//! Fits `a`, `a + b·N` or `a + b·N + c·N²` to measurements, by least squares.
//!
//! More terms always come closer to what was measured, and lead further astray beyond it. So the
//! shortest formula is taken that misses nothing by more than [`TOLERANCE`]; if none does, the
//! longest, and its error is there for all to see. How far a formula carries is tried on what is
//! known: the largest cluster, foretold from the smaller ones.

/// How far a formula may be from what was measured, in parts of that.
const TOLERANCE: f64 = 0.05;

/// A formula for a figure of clusters of `N` processes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fit {
    /// Factors of 1, N and N²; the last may be missing.
    terms: Vec<f64>,
}

impl Fit {
    /// The shortest formula that will do for these points, at different `N`; `None` if there are
    /// too few to tell that it does, which are as many as it has terms.
    pub(super) fn of(points: &[(f64, f64)]) -> Option<Fit> {
        let fits = (1..=3).filter(|terms| *terms < points.len());
        let fits: Vec<Fit> = fits.filter_map(|n| Fit::with(n, points)).collect();
        let good = fits.iter().find(|fit| fit.error(points) <= TOLERANCE);
        good.or(fits.last()).cloned()
    }

    /// The best formula of so many terms. Each point is weighted by its own size, so that small
    /// clusters count as much as large ones.
    fn with(count: usize, points: &[(f64, f64)]) -> Option<Fit> {
        let mut equations = vec![vec![0.0; count + 1]; count];
        for &(n, value) in points {
            let mut known: Vec<f64> = (0..count).map(|power| n.powi(power as i32)).collect();
            known.push(value);
            let weight = 1.0 / scale(value).powi(2);
            for (row, equation) in equations.iter_mut().enumerate() {
                for (sum, term) in equation.iter_mut().zip(&known) {
                    *sum += weight * known[row] * term;
                }
            }
        }
        solve(equations).map(|terms| Fit { terms })
    }

    /// What the formula says of `n` processes.
    pub(super) fn at(&self, n: f64) -> f64 {
        self.terms
            .iter()
            .rev()
            .fold(0.0, |sum, term| sum * n + term)
    }

    /// Its factors of 1, N and N².
    pub(super) fn terms(&self) -> &[f64] {
        &self.terms
    }

    /// By how much it misses the point that it misses by most, in parts of that.
    pub(super) fn error(&self, points: &[(f64, f64)]) -> f64 {
        let errors = points.iter().map(|&(n, value)| self.miss(n, value).abs());
        errors.fold(0.0, f64::max)
    }

    /// How far above (or below) what was measured a formula of as many terms is at the last point
    /// that knows the others alone.
    pub(super) fn error_at_last(&self, points: &[(f64, f64)]) -> Option<f64> {
        let (&(n, value), others) = points.split_last()?;
        let enough = others.len() >= self.terms.len();
        let fit = Fit::with(self.terms.len(), others).filter(|_| enough)?;
        Some(fit.miss(n, value))
    }

    fn miss(&self, n: f64, value: f64) -> f64 {
        (self.at(n) - value) / scale(value)
    }
}

/// What is smaller than 1 is as good as nothing, in the units that are measured in here.
fn scale(value: f64) -> f64 {
    value.abs().max(1.0)
}

impl std::fmt::Display for Fit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (term, power) in self.terms.iter().zip(["", "·N", "·N²"]) {
            let digits = if term.abs() < 10.0 { 3 } else { 1 };
            match power {
                "" => write!(f, "{term:.digits$}")?,
                _ => write!(f, " {term:+.digits$}{power}")?,
            }
        }
        Ok(())
    }
}

/// Gauss's elimination, the largest pivot first. Each row ends with what its sum is to be.
fn solve(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = rows.len();
    for column in 0..count {
        let size = |row: &usize| rows[*row][column].abs();
        let pivot = (column..count).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        rows.swap(column, pivot);
        let lead = rows[column].clone();
        if lead[column].abs() < 1e-12 {
            return None;
        }
        for (index, row) in rows.iter_mut().enumerate() {
            if index != column {
                let factor = row[column] / lead[column];
                for (value, of_lead) in row.iter_mut().zip(&lead) {
                    *value -= factor * of_lead;
                }
            }
        }
    }
    Some(
        (0..count)
            .map(|row| rows[row][count] / rows[row][row])
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 5] = [2.0, 4.0, 8.0, 16.0, 32.0];

    fn points(formula: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        SIZES.map(|n| (n, formula(n))).to_vec()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6 * b.abs().max(1.0)
    }

    #[test]
    fn what_lies_on_a_formula_is_found_and_no_more_than_that() {
        let parabola = points(|n| 3.0 + 0.5 * n + 0.25 * n * n);
        let fit = Fit::of(&parabola).unwrap();
        assert!(close(fit.at(64.0), 1059.0), "{fit}");
        assert!(
            fit.error(&parabola) < 1e-6 && fit.terms().len() == 3,
            "{fit}"
        );

        let line = Fit::of(&points(|n| 5.0 + 2.0 * n)).unwrap();
        assert!(
            close(line.at(128.0), 261.0) && line.terms().len() == 2,
            "{line}"
        );
        assert_eq!(line.to_string(), "5.000 +2.000·N");

        let constant = Fit::of(&points(|n| 21.0 + (n / 2.0) % 2.0)).unwrap();
        assert_eq!(constant.terms().len(), 1, "{constant}");
        assert!((21.0..22.0).contains(&constant.at(128.0)), "{constant}");
        let nothing = Fit::of(&points(|_| 0.0)).unwrap();
        assert_eq!(nothing.at(128.0), 0.0);
    }

    #[test]
    fn a_bad_fit_is_seen() {
        let exponential = points(|n| 1.3_f64.powf(n));
        let fit = Fit::of(&exponential).unwrap();
        assert_eq!(fit.terms().len(), 3);
        assert!(fit.error(&exponential) > 0.3, "{fit}");
    }

    #[test]
    fn the_last_point_is_foretold_from_the_others() {
        let mut bent = points(|n| 10.0 * n);
        assert!(close(
            Fit::of(&bent).unwrap().error_at_last(&bent).unwrap(),
            0.0
        ));
        // Half of what the line foretells: it is twice as high.
        bent[4].1 = 160.0;
        let line = Fit::with(2, &bent).unwrap();
        assert!(close(line.error_at_last(&bent).unwrap(), 1.0));
    }

    #[test]
    fn as_many_points_as_terms_are_too_few() {
        assert_eq!(Fit::of(&[(1.0, 1.0)]), None);
        let two = Fit::of(&[(1.0, 10.0), (2.0, 20.0)]).unwrap();
        assert_eq!(two.terms().len(), 1, "a line would always do");
    }
}
