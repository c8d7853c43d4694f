//! Fits `a + b·N + c·N²` to measurements, by least squares.

/// What fits best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit([f64; 3]);

impl Fit {
    /// Of at least three points at different `N`; `None` if there are fewer. Each is weighted by
    /// its own size, so that small clusters count as much as large ones.
    pub(super) fn of(points: &[(f64, f64)]) -> Option<Fit> {
        let mut equations = [[0.0; 4]; 3];
        for &(n, value) in points {
            let terms = [1.0, n, n * n, value];
            let weight = 1.0 / value.abs().max(1.0).powi(2);
            for (row, equation) in equations.iter_mut().enumerate() {
                for (sum, term) in equation.iter_mut().zip(terms) {
                    *sum += weight * terms[row] * term;
                }
            }
        }
        solve(equations).map(Fit)
    }

    pub(super) fn at(&self, n: f64) -> f64 {
        let [a, b, c] = self.0;
        a + b * n + c * n * n
    }
}

impl std::fmt::Display for Fit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c] = self.0;
        write!(f, "{a:.3} {b:+.3}·N {c:+.4}·N²")
    }
}

/// Gauss's elimination, the largest pivot first.
fn solve(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let size = |row: &usize| rows[*row][column].abs();
        let pivot = (column..3).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        rows.swap(column, pivot);
        let lead = rows[column];
        if lead[column].abs() < 1e-12 {
            return None;
        }
        for (index, row) in rows.iter_mut().enumerate() {
            if index != column {
                let factor = row[column] / lead[column];
                for (value, of_lead) in row.iter_mut().zip(lead) {
                    *value -= factor * of_lead;
                }
            }
        }
    }
    let value = |row: usize| rows[row][3] / rows[row][row];
    Some([value(0), value(1), value(2)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_a_parabola_is_found() {
        let points = [2.0, 4.0, 8.0, 16.0].map(|n| (n, 3.0 + 0.5 * n + 0.25 * n * n));
        let fit = Fit::of(&points).unwrap();
        assert!((fit.at(32.0) - 275.0).abs() < 1e-6, "{fit}");
    }

    #[test]
    fn two_points_are_too_few() {
        assert_eq!(Fit::of(&[(1.0, 1.0), (2.0, 2.0)]), None);
    }
}
