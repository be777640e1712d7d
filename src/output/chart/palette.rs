//! What tells one line from another: a colour and a marker, so that either is enough.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::ChartError;

/// Okabe and Ito's colours, which people with any kind of colour blindness tell apart, the pale yellow
/// left out: it cannot be seen on white.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x77, 0x77, 0x77),
];

pub(super) const BAR: RGBColor = COLOURS[2];
/// Lighter than [`BAR`] in grey, too.
pub(super) const BASELINE: RGBColor = RGBColor(0xb0, 0xb0, 0xb0);

pub(super) fn colour(series: usize) -> RGBColor {
    COLOURS[series % COLOURS.len()]
}

/// Half the size of a marker, in pixels.
const SIZE: i32 = 5;

/// Draws the marker of a series around a point of the whole picture; a hollow one differs from a filled
/// one in no other way.
pub(super) fn marker(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    series: usize,
    hollow: bool,
    (x, y): (i32, i32),
) -> Result<(), ChartError> {
    let colour = colour(series);
    let edge = colour.stroke_width(2);
    let fill = match hollow {
        true => WHITE.filled(),
        false => colour.filled(),
    };
    let polygon = |points: &[(i32, i32)]| {
        let mut points: Vec<_> = points
            .iter()
            .map(|(right, down)| (x + right * SIZE / 4, y + down * SIZE / 4))
            .collect();
        area.draw(&Polygon::new(points.clone(), fill))?;
        points.extend(points.first().copied());
        area.draw(&PathElement::new(points, edge))
    };
    let strokes = |strokes: &[[(i32, i32); 2]]| {
        strokes.iter().try_for_each(|stroke| {
            let ends = stroke.map(|(right, down)| (x + right * SIZE / 4, y + down * SIZE / 4));
            area.draw(&PathElement::new(ends.to_vec(), colour.stroke_width(3)))
        })
    };
    match series % COLOURS.len() {
        0 => {
            area.draw(&Circle::new((x, y), SIZE, fill))?;
            area.draw(&Circle::new((x, y), SIZE, edge))
        }
        1 => polygon(&[(-4, -4), (4, -4), (4, 4), (-4, 4)]),
        2 => polygon(&[(0, -5), (5, 4), (-5, 4)]),
        3 => polygon(&[(0, -6), (6, 0), (0, 6), (-6, 0)]),
        4 => polygon(&[(0, 5), (5, -4), (-5, -4)]),
        5 => strokes(&[[(-4, -4), (4, 4)], [(-4, 4), (4, -4)]]),
        6 => polygon(&[(-2, -5), (2, -5), (5, 0), (2, 5), (-2, 5), (-5, 0)]),
        _ => strokes(&[[(-5, 0), (5, 0)], [(0, -5), (0, 5)]]),
    }?;
    Ok(())
}
