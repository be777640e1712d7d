//! Lines over sizes, on an axis of powers of two.

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{
    Area, Axis, ChartError, GRID, INK, TEXT, document, drawable, palette, scale, style, width,
};

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// Lines of one series have the same colour and marker.
    pub(crate) series: usize,
    /// The second line of a series is dashed, and its markers are hollow.
    pub(crate) dashed: bool,
    /// Size (above zero) and figure, by size.
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: i32 = 1000;
const HEIGHT: i32 = 576;
const MARGIN: i32 = 16;
/// Above the plot, left of it and below it.
const HEAD: i32 = 66;
const LEFT: i32 = 64;
const FOOT: i32 = 50;
/// From one name in the legend to the next.
const ROW: i32 = 24;
/// The piece of a line in front of its name.
const SAMPLE: i32 = 40;

/// The lines with their names beside them, those that end highest first. A mark is a size and what there
/// is to say about it.
pub(crate) fn lines(
    title: &str,
    x_axis: Axis<'_>,
    y_axis: Axis<'_>,
    lines: &[Line],
    mark: Option<(f64, String)>,
) -> Result<String, ChartError> {
    let points = || {
        lines
            .iter()
            .flat_map(|line| line.points.iter().map(move |point| (line, point)))
    };
    for (line, (size, figure)) in points() {
        drawable(*size, &line.label, true)?;
        drawable(*figure, &line.label, false)?;
    }
    let marked = mark.iter().map(|(size, _)| *size);
    let sizes = || points().map(|(_, point)| point.0).chain(marked.clone());
    let bounds = sizes()
        .min_by(f64::total_cmp)
        .zip(sizes().max_by(f64::total_cmp));
    let highest = points().map(|(_, point)| point.1).max_by(f64::total_cmp);
    let (Some((low, high)), Some(highest)) = (bounds, highest) else {
        return Err(ChartError::Empty);
    };
    // A point of its own is in the middle, and none is on the edge.
    let aside = ((high / low).log2() / 40.0).max(0.25).exp2();
    let names = lines
        .iter()
        .map(|line| width(&line.label))
        .max()
        .unwrap_or(0);
    let rows = i32::try_from(lines.len()).unwrap_or(i32::MAX / ROW);
    let plot = Plot {
        axes: [x_axis, y_axis],
        sizes: (low / aside, high * aside),
        ticks: scale::powers_of_two(low, high),
        highest,
        legend: SAMPLE + 8 + names + MARGIN,
    };
    let height = HEIGHT.max(HEAD + rows * ROW + MARGIN);
    document(title, (WIDTH, height), |area| {
        plot.draw(area, lines, mark.as_ref())
    })
}

struct Plot<'a> {
    axes: [Axis<'a>; 2],
    sizes: (f64, f64),
    ticks: Vec<f64>,
    highest: f64,
    /// How wide the legend is.
    legend: i32,
}

impl Plot<'_> {
    fn draw(
        &self,
        area: &Area<'_>,
        lines: &[Line],
        mark: Option<&(f64, String)>,
    ) -> Result<(), ChartError> {
        let [x_axis, y_axis] = self.axes;
        let (low, high) = self.sizes;
        // Room for what the mark says, where no line is.
        let top = self.highest * if mark.is_some() { 1.12 } else { 1.05 };
        let across = (low..high).log_scale().with_key_points(self.ticks.clone());
        let mut chart = ChartBuilder::on(area)
            .margin_top(HEAD)
            .margin_left(MARGIN)
            .margin_right(self.legend + MARGIN)
            .margin_bottom(MARGIN)
            .x_label_area_size(FOOT)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(across, 0.0..top)?;
        chart
            .configure_mesh()
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(style(TEXT, HPos::Center, VPos::Top))
            .y_labels(8)
            .x_label_formatter(&|size| (x_axis.figure)(*size))
            .y_label_formatter(&|figure| (y_axis.figure)(*figure))
            .x_desc(x_axis.title)
            .y_desc(y_axis.title)
            .draw()?;
        let (left, right) = (
            chart.backend_coord(&(low, 0.0)).0,
            chart.backend_coord(&(high, 0.0)).0,
        );
        let place = |point: &(f64, f64)| chart.backend_coord(point);
        if let Some((size, text)) = mark {
            let (x, y) = place(&(*size, top));
            let foot = place(&(*size, 0.0)).1;
            let ends = [(x, y), (x, foot)];
            area.draw(&DashedPathElement::new(ends, 2, 4, INK.stroke_width(1)))?;
            // On the side that has room.
            let (edge, x) = match x - left < right - x {
                true => (HPos::Left, x + 6),
                false => (HPos::Right, x - 6),
            };
            area.draw(&Text::new(
                text.clone(),
                (x, y + 4),
                style(TEXT, edge, VPos::Top),
            ))?;
        }
        for line in lines {
            stroke(area, line, line.points.iter().map(place).collect())?;
        }
        for line in lines {
            for point in &line.points {
                palette::marker(area, line.series, line.dashed, place(point))?;
            }
        }
        self.names(area, lines)
    }

    /// The legend, in the order in which the lines end, so that name and line are found together.
    fn names(&self, area: &Area<'_>, lines: &[Line]) -> Result<(), ChartError> {
        let mut order: Vec<&Line> = lines.iter().collect();
        let end = |line: &Line| line.points.last().map_or(0.0, |point| point.1);
        order.sort_by(|a, b| end(b).total_cmp(&end(a)));
        let left = WIDTH - self.legend;
        let mut middle = HEAD + ROW / 2;
        for line in order {
            stroke(area, line, vec![(left, middle), (left + SAMPLE, middle)])?;
            palette::marker(area, line.series, line.dashed, (left + SAMPLE / 2, middle))?;
            let name = style(TEXT, HPos::Left, VPos::Center);
            area.draw(&Text::new(
                line.label.clone(),
                (left + SAMPLE + 8, middle),
                name,
            ))?;
            middle += ROW;
        }
        Ok(())
    }
}

fn stroke(area: &Area<'_>, line: &Line, points: Vec<(i32, i32)>) -> Result<(), ChartError> {
    let pen = palette::colour(line.series).stroke_width(2);
    match line.dashed {
        true => area.draw(&DashedPathElement::new(points, 6, 4, pen))?,
        false => area.draw(&PathElement::new(points, pen))?,
    }
    Ok(())
}
