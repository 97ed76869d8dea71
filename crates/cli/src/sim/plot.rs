//! A drawing of the answers: three panels over the sizes of memory, as SVG.
//!
//! ```text
//!   found in memory or on disk   |      .--*   a line for each policy and disk
//!   epoch time, waiting dashed   |  *--*
//!   bytes from the origin        +--8--16--32 GiB
//! ```
//!
//! Sizes are evenly spaced in their order, whatever is between them.

use std::fmt::Write;

use super::question::Answer;
use crate::output::size;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 64.0;
const PANEL: f64 = 170.0;
const GAP: f64 = 44.0;
/// Told from each other by those who see colours otherwise, too (Okabe and Ito).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];
/// More labels than these would run into each other.
const MOST_LABELS: usize = 10;

/// A figure of an answer.
type Figure = fn(&Answer) -> f64;

struct Panel {
    title: &'static str,
    figure: Figure,
    /// Drawn dashed, on the same scale.
    beside: Option<Figure>,
    label: fn(f64) -> String,
    /// The scale's end, if it is always the same.
    most: Option<f64>,
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "samples found in memory (dashed: in memory or on disk)",
        figure: |answer| answer.later.share(answer.later.memory_hits),
        beside: Some(|answer| {
            let found = answer.later.memory_hits + answer.later.disk_hits;
            answer.later.share(found)
        }),
        label: |share| format!("{:.0} %", 100.0 * share),
        most: Some(1.0),
    },
    Panel {
        title: "seconds of an epoch (dashed: of these waiting for data)",
        figure: |answer| answer.later.seconds,
        beside: Some(|answer| answer.later.seconds * answer.later.waiting),
        label: |seconds| format!("{seconds:.3} s"),
        most: None,
    },
    Panel {
        title: "bytes from the origin in an epoch",
        figure: |answer| answer.later.origin_bytes,
        beside: None,
        label: |bytes| size(bytes as u64),
        most: None,
    },
];

/// The drawing.
pub(super) fn svg(title: &str, answers: &[Answer]) -> String {
    let mut sizes: Vec<u64> = answers.iter().map(|answer| answer.memory).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let series = series(answers);
    let key = 20.0 * series.len() as f64;
    let height = TOP + key + PANELS.len() as f64 * (PANEL + GAP) + 10.0;
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>\n\
         <text x=\"{LEFT}\" y=\"42\" fill=\"#555\">by size of memory, an epoch after the first</text>",
        escaped(title)
    );
    for (at, (name, _)) in series.iter().enumerate() {
        let (y, colour) = (TOP + 20.0 * at as f64, COLOURS[at % COLOURS.len()]);
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {y}h24\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            LEFT + 32.0,
            y + 4.0,
            escaped(name)
        );
    }
    for (at, panel) in PANELS.iter().enumerate() {
        let top = TOP + key + GAP / 2.0 + at as f64 * (PANEL + GAP);
        panel.draw(&mut text, top, &sizes, &series);
    }
    text += "</svg>\n";
    text
}

/// Answers with the same policy and disk, under a name.
fn series(answers: &[Answer]) -> Vec<(String, Vec<&Answer>)> {
    let mut series: Vec<(String, Vec<&Answer>)> = Vec::new();
    for answer in answers {
        let same = |one: &Answer| one.policy == answer.policy && one.disk == answer.disk;
        if let Some((_, answers)) = series.iter_mut().find(|(_, known)| same(known[0])) {
            answers.push(answer);
            continue;
        }
        let name = match answer.disk {
            0 => answer.policy.clone(),
            disk => format!("{}, disk of {}", answer.policy, size(disk)),
        };
        series.push((name, vec![answer]));
    }
    for (_, answers) in &mut series {
        answers.sort_by_key(|answer| answer.memory);
    }
    series
}

impl Panel {
    fn draw(&self, text: &mut String, top: f64, sizes: &[u64], series: &[(String, Vec<&Answer>)]) {
        let all = series.iter().flat_map(|(_, answers)| answers);
        let most = all.map(|answer| (self.figure)(answer)).fold(0.0, f64::max);
        let most = self.most.unwrap_or(most).max(f64::MIN_POSITIVE);
        let (bottom, right) = (top + PANEL, WIDTH - RIGHT);
        let _ = writeln!(
            text,
            "<text x=\"{LEFT}\" y=\"{}\">{}</text>",
            top - 8.0,
            self.title
        );
        for quarter in 0..=4 {
            let part = f64::from(quarter) / 4.0;
            let y = bottom - part * PANEL;
            let _ = writeln!(
                text,
                "<path d=\"M{LEFT} {y}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                (self.label)(part * most)
            );
        }
        let step = sizes.len().div_ceil(MOST_LABELS).max(1);
        for (at, &bytes) in sizes.iter().enumerate().step_by(step) {
            let _ = writeln!(
                text,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
                x(at, sizes.len()),
                bottom + 16.0,
                size(bytes)
            );
        }
        for (number, (_, answers)) in series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let figures = [
                (Some(self.figure), ""),
                (self.beside, " stroke-dasharray=\"4 4\""),
            ];
            for (figure, dash) in figures {
                let Some(figure) = figure else { continue };
                let mut points = String::new();
                for answer in answers {
                    let at = sizes.binary_search(&answer.memory).unwrap_or(0);
                    let y = bottom - (figure(answer) / most).clamp(0.0, 1.0) * PANEL;
                    let x = x(at, sizes.len());
                    let _ = write!(points, "{x:.1},{y:.1} ");
                    if dash.is_empty() {
                        let _ = writeln!(
                            text,
                            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
                        );
                    }
                }
                let _ = writeln!(
                    text,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
                     stroke-width=\"2\"{dash}/>",
                    points.trim_end()
                );
            }
        }
    }
}

/// Where the size at this place is drawn.
fn x(at: usize, sizes: usize) -> f64 {
    let width = WIDTH - LEFT - RIGHT - 60.0;
    let part = match sizes {
        1 => 0.5,
        _ => at as f64 / (sizes - 1) as f64,
    };
    LEFT + 30.0 + part * width
}

/// A url may hold anything.
fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for char in text.chars() {
        match char {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            char if char.is_control() => safe.push('\u{fffd}'),
            char => safe.push(char),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_cannot_break_the_drawing() {
        let drawing = svg("s3://a&b/<script>\x1b[31m", &[]);
        assert!(
            drawing.contains("s3://a&amp;b/&lt;script&gt;\u{fffd}[31m"),
            "{drawing}"
        );
    }

    #[test]
    fn sizes_are_spread_over_the_width_and_one_is_in_the_middle() {
        assert!(x(0, 3) > LEFT && x(2, 3) < WIDTH - RIGHT);
        assert_eq!(x(1, 3), x(0, 1));
    }
}
