//! The rates as horizontal bars: an SVG picture by hand, for light and dark pages.
//!
//! Cases differ by an order of magnitude, so each has a scale of its own: the longest bar of a case
//! is as long as that of any other, and every bar has its figure.

use std::fmt::Write;

use super::case::System;
use super::metric::{Metric, three_digits};
use super::summary::Row;

/// Width of the picture, in pixels at its natural size.
const WIDTH: u32 = 760;
/// Where bars begin.
const LEFT: u32 = 130;
/// The longest bar; its figure is to the right of it.
const BAR: u32 = 430;
/// From one bar to the next, and its thickness.
const STEP: u32 = 24;
const THICK: u32 = 16;
/// Above the first bar of a case: its title.
const TITLE: u32 = 34;
const MARGIN: u32 = 12;

/// Colours that can be read on white and on nearly black: a picture in a page doesn't know which of
/// the two the page is, only what its reader's system prefers.
const STYLE: &str = "\
    text{font:13px -apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#768390}\
    .title{font-weight:600}\
    .tidegate{fill:#2f81f7}.timely{fill:#a5afb9}.flink{fill:#e6526f}.renoir{fill:#b07cd8}\
    .renoir-packed{fill:#8a63c4}";

/// Draws the rates of all systems at all cases. `None` if there are none.
pub(crate) fn svg(rows: &[Row]) -> Option<String> {
    let rates = rows
        .iter()
        .filter(|row| row.metric == Metric::Rate && !row.case.of_intervals());
    let mut groups = String::new();
    let mut top = MARGIN;
    for row in rates {
        top = group(&mut groups, row, top);
    }
    let height = top + MARGIN;
    (!groups.is_empty()).then(|| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"records per second of each system\">\n\
             <style>{STYLE}</style>\n{groups}</svg>\n"
        )
    })
}

/// Draws one case from `top` down and returns where the next one begins.
fn group(text: &mut String, row: &Row, top: u32) -> u32 {
    let title = row.case.title();
    line(
        text,
        format_args!(
            "<text class=\"title\" x=\"{MARGIN}\" y=\"{}\">{title}, records/s</text>",
            top + 20
        ),
    );
    let values = || {
        row.cells
            .iter()
            .filter_map(|(one, value)| Some((one.system, (*value)?.value)))
    };
    let longest = values().map(|(_, value)| value).fold(0.0, f64::max);
    let mut y = top + TITLE;
    for (system, value) in values() {
        bar(
            text,
            y,
            system,
            value / longest,
            &figure(row, system, value),
        );
        y += STEP;
    }
    y
}

fn bar(text: &mut String, y: u32, system: System, share: f64, figure: &str) {
    let baseline = y + 13;
    let name = system.title();
    let class = system.name();
    // At least so wide that one sees that there is something.
    let width = (share * f64::from(BAR)).max(1.0);
    let end = f64::from(LEFT) + width + 8.0;
    line(
        text,
        format_args!(
            "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{name}</text>\
         <rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" \
         width=\"{width:.1}\" height=\"{THICK}\" rx=\"2\"/>\
         <text x=\"{end:.1}\" y=\"{baseline}\">{figure}</text>",
            LEFT - 10,
        ),
    );
}

/// The rate, and how far Tidegate is ahead.
fn figure(row: &Row, system: System, value: f64) -> String {
    let rate = row.metric.text(value);
    match row.advantage(system) {
        Some(ahead) if system != System::Tidegate => {
            format!("{rate} (Tidegate: {} ×)", three_digits(ahead))
        }
        _ => rate,
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("writing to memory succeeds");
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::super::case::Case;
    use super::super::summary::rows;
    use super::super::summary::tests::comparison;
    use super::*;

    fn picture() -> String {
        let peers = [System::Timely, System::Flink, System::Renoir];
        svg(&rows(&[
            comparison(Case::KeyedCount1k, &peers, &[100e6, 125e6, 12.5e6, 50e6]),
            comparison(Case::Checkpoints1k, &peers, &[1e6, 1e6, 1e6]),
        ]))
        .unwrap()
    }

    #[test]
    fn bars_are_as_long_as_rates_are_high() {
        let picture = picture();
        let longest = format!("class=\"timely\" x=\"{LEFT}\" y=\"70\" width=\"{BAR}.0\"");
        assert!(picture.contains(&longest), "{picture}");
        assert!(
            picture.contains("width=\"344.0\""),
            "four fifths: {picture}"
        );
        assert!(picture.contains("width=\"43.0\""), "a tenth: {picture}");
        assert!(picture.contains("12.5 M (Tidegate: 8.00 ×)"), "{picture}");
        assert!(picture.contains("50.0 M (Tidegate: 2.00 ×)"), "{picture}");
        assert_eq!(picture.matches("<rect").count(), 4);
    }

    #[test]
    fn every_system_has_a_colour() {
        for system in System::value_variants().iter().chain(&[System::Tidegate]) {
            let name = system.name();
            assert!(STYLE.contains(&format!(".{name}{{fill:#")), "{name}");
        }
    }

    #[test]
    fn every_element_is_closed_and_within_the_picture() {
        let picture = picture();
        for tag in ["svg", "text", "style"] {
            let opened = picture.matches(&format!("<{tag}")).count();
            assert_eq!(
                opened,
                picture.matches(&format!("</{tag}>")).count(),
                "{tag}"
            );
        }
        let longest_figure = 8 * "125 M (Tidegate: 0.80 ×)".chars().count() as u32;
        assert!(LEFT + BAR + 8 + longest_figure <= WIDTH);
    }

    #[test]
    fn where_no_rates_are_there_is_no_picture() {
        assert_eq!(svg(&[]), None);
    }
}
