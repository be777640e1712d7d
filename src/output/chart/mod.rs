//! Charts as SVG text. Nothing here knows what is drawn: callers bring labels, figures and how to write
//! them.
//!
//! A chart is read without its table, in print and by people who cannot tell all colours apart: every
//! bar has its figure beside it, and every line a marker of its own.

mod bars;
mod lines;
mod palette;
mod scale;
#[cfg(test)]
mod tests;

use std::fmt;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(crate) use self::bars::{Bar, Group, bars};
pub(crate) use self::lines::{Line, lines};

/// What an axis shows, and how its figures are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis<'a> {
    pub(crate) title: &'a str,
    pub(crate) figure: fn(f64) -> String,
}

/// Why there is no chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChartError {
    /// Nothing to draw.
    Empty,
    /// A figure that has no place on the axis, and what it belongs to.
    Figure { label: String, figure: String },
    /// What the drawing crate says.
    Drawing(String),
}

impl fmt::Display for ChartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("There are no figures to draw"),
            Self::Figure { label, figure } => {
                write!(
                    f,
                    "The figure {figure} of '{label}' has no place on the axis"
                )
            }
            Self::Drawing(why) => write!(f, "The chart could not be drawn: {why}"),
        }
    }
}

impl std::error::Error for ChartError {}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for ChartError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Drawing(error.to_string())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Fonts that every viewer has one of; widths below are those of the widest, DejaVu Sans.
const FONT: &str = "Arial, Helvetica, DejaVu Sans, sans-serif";
/// Heights of letters, in pixels as the crate counts them: 1.24 of these are one of SVG's.
const TITLE: i32 = 20;
const TEXT: i32 = 16;
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xd5, 0xd5, 0xd5);
const FAINT: RGBColor = RGBColor(0xee, 0xee, 0xee);

/// Letters of this height, placed by the given edges.
fn style<'a>(size: i32, horizontal: HPos, vertical: VPos) -> TextStyle<'a> {
    (FONT, size)
        .into_font()
        .color(&INK)
        .pos(Pos::new(horizontal, vertical))
}

/// How wide a text of [`TEXT`]'s height is at most, in pixels.
fn width(text: &str) -> i32 {
    // The crate's 16 are SVG's 13; DejaVu's letters are 0.62 of that on average.
    let letters = i32::try_from(text.chars().count()).unwrap_or(i32::MAX / 8);
    letters.saturating_mul(8)
}

/// The figure, if it is one that can be drawn.
fn drawable(figure: f64, label: &str, positive: bool) -> Result<f64, ChartError> {
    let good = figure.is_finite() && (figure > 0.0 || (!positive && figure == 0.0));
    good.then_some(figure).ok_or_else(|| ChartError::Figure {
        label: label.to_owned(),
        figure: figure.to_string(),
    })
}

/// Draws on white, below a title of one or two lines, and gives the document a name that screen readers
/// say.
fn document(
    title: &str,
    size: (i32, i32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), ChartError>,
) -> Result<String, ChartError> {
    let mut text = String::new();
    {
        let size = (size.0.unsigned_abs(), size.1.unsigned_abs());
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE)?;
        let sizes = [(TITLE, 26), (TEXT, 48)];
        for (line, (size, middle)) in title.lines().zip(sizes) {
            let heading = style(size, HPos::Left, VPos::Center);
            area.draw(&Text::new(line, (16, middle), heading))?;
        }
        draw(&area)?;
        area.present()?;
    }
    Ok(named(text, title))
}

fn named(text: String, title: &str) -> String {
    let Some(end) = text
        .find("<svg")
        .and_then(|tag| Some(tag + text[tag..].find('>')?))
    else {
        return text;
    };
    let (head, rest) = text.split_at(end);
    let (opening, rest) = rest.split_at(1);
    let title = title
        .replace('\n', ", ")
        .replace('&', "&amp;")
        .replace('<', "&lt;");
    format!("{head} role=\"img\"{opening}\n<title>{title}</title>{rest}")
}
