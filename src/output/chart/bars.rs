//! Horizontal bars on a logarithmic axis, in groups.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{
    Area, Axis, ChartError, FAINT, GRID, INK, TEXT, document, drawable, palette, scale, style,
    width,
};

/// Bars that belong together, under a title of their own.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

/// One figure.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) label: String,
    /// Above zero: the axis is logarithmic.
    pub(crate) value: f64,
    /// Drawn as a whisker to both sides.
    pub(crate) stdev: Option<f64>,
    /// Whether the other bars of its group are seen in relation to it.
    pub(crate) baseline: bool,
}

const WIDTH: i32 = 1000;
/// Between the edges and everything else.
const MARGIN: i32 = 16;
/// From the top of one bar to that of the next.
const ROW: i32 = 24;
/// Of a group's title, with the space above it.
const HEADER: i32 = 36;
/// Above the first group, and below the last.
const HEAD: i32 = 60;
const FOOT: i32 = 62;
/// What is left of a bar's row above and below it.
const GAP: i32 = 4;
/// Longer labels are cut.
const LABEL: usize = 44;
/// The shortest bar is this part of its figure on the axis: long enough to be seen.
const SHORTEST: f64 = 1.6;

/// A bar with a label before it and its figure behind it, for each of each group. The figure of the
/// baseline is the one that the others of the group are multiples of.
pub(crate) fn bars(title: &str, axis: Axis<'_>, groups: &[Group]) -> Result<String, ChartError> {
    let all = || groups.iter().flat_map(|group| &group.bars);
    for bar in all() {
        drawable(bar.value, &bar.label, true)?;
        drawable(bar.stdev.unwrap_or(0.0), &bar.label, false)?;
    }
    let lowest = all().map(|bar| bar.value).min_by(f64::total_cmp);
    let highest = all().map(|bar| bar.value + bar.stdev.unwrap_or(0.0));
    let (Some(lowest), Some(highest)) = (lowest, highest.max_by(f64::total_cmp)) else {
        return Err(ChartError::Empty);
    };
    let range = (scale::rounded_down(lowest / SHORTEST), highest * 1.05);
    let labels = all().map(|bar| width(&cut(&bar.label))).max().unwrap_or(0);
    let figures = groups.iter().flat_map(|group| {
        let figures = group.bars.iter().map(|bar| figure(axis, group, bar));
        figures.map(|figure| width(&figure)).collect::<Vec<_>>()
    });
    let plot = Plot {
        axis,
        range,
        left: MARGIN + labels + 8,
        right: figures.max().unwrap_or(0) + 8 + MARGIN,
        height: groups.iter().map(height).sum(),
    };
    document(title, (WIDTH, HEAD + plot.height + FOOT), |area| {
        plot.draw(area, groups)
    })
}

fn height(group: &Group) -> i32 {
    HEADER + ROW * i32::try_from(group.bars.len()).unwrap_or(0)
}

fn cut(label: &str) -> String {
    match label.chars().count() > LABEL {
        true => label.chars().take(LABEL - 1).chain(['…']).collect(),
        false => label.to_owned(),
    }
}

/// What stands behind a bar.
fn figure(axis: Axis<'_>, group: &Group, bar: &Bar) -> String {
    let mut text = (axis.figure)(bar.value);
    if let Some(stdev) = bar.stdev {
        text.push_str(&format!(" ± {}", (axis.figure)(stdev)));
    }
    let baseline = group.bars.iter().find(|bar| bar.baseline);
    match baseline {
        _ if bar.baseline => text.push_str(" · baseline"),
        Some(baseline) => {
            let ratio = bar.value / baseline.value;
            // Small ones need their digits.
            let digits = if ratio < 0.1 { 3 } else { 2 };
            text.push_str(&format!(" · ×{ratio:.digits$}"));
        }
        None => {}
    }
    text
}

struct Plot<'a> {
    axis: Axis<'a>,
    range: (f64, f64),
    /// Where bars begin, and how much is behind the longest.
    left: i32,
    right: i32,
    /// Of all groups.
    height: i32,
}

impl Plot<'_> {
    fn draw(&self, area: &Area<'_>, groups: &[Group]) -> Result<(), ChartError> {
        let (low, high) = self.range;
        let across = (low..high)
            .log_scale()
            .with_key_points(scale::decades(low, high))
            .with_light_points(scale::digits(low, high));
        let mut chart = ChartBuilder::on(area)
            .margin_top(HEAD)
            .margin_left(self.left)
            .margin_right(self.right)
            .margin_bottom(MARGIN)
            .x_label_area_size(FOOT - MARGIN)
            .build_cartesian_2d(across, f64::from(self.height)..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(FAINT)
            .label_style(style(TEXT, HPos::Center, VPos::Top))
            .x_label_formatter(&|figure| (self.axis.figure)(*figure))
            .x_desc(format!("{} (logarithmic)", self.axis.title))
            .draw()?;
        let x = |figure: f64| chart.backend_coord(&(figure.clamp(low, high), 0.0)).0;
        let mut top = HEAD;
        for group in groups {
            let heading = style(TEXT + 2, HPos::Left, VPos::Center);
            area.draw(&Text::new(
                group.title.clone(),
                (MARGIN, top + HEADER - 14),
                heading,
            ))?;
            top += HEADER;
            for bar in &group.bars {
                self.bar(area, group, bar, top, &x)?;
                top += ROW;
            }
        }
        Ok(())
    }

    /// One bar, whose row begins at `top`.
    fn bar(
        &self,
        area: &Area<'_>,
        group: &Group,
        bar: &Bar,
        top: i32,
        x: &dyn Fn(f64) -> i32,
    ) -> Result<(), ChartError> {
        let middle = top + ROW / 2;
        let label = style(TEXT, HPos::Right, VPos::Center);
        area.draw(&Text::new(cut(&bar.label), (self.left - 8, middle), label))?;
        let colour = match bar.baseline {
            true => palette::BASELINE,
            false => palette::BAR,
        };
        let corners = [
            (x(self.range.0), top + GAP),
            (x(bar.value), top + ROW - GAP),
        ];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        let mut end = x(bar.value);
        if let Some(stdev) = bar.stdev.filter(|stdev| *stdev > 0.0) {
            let (from, to) = (x(bar.value - stdev), x(bar.value + stdev));
            end = end.max(to);
            let whisker = |points: Vec<(i32, i32)>| PathElement::new(points, INK.stroke_width(1));
            area.draw(&whisker(vec![(from, middle), (to, middle)]))?;
            // Where the axis begins there is no end to show.
            let ends = [from, to].into_iter().filter(|end| *end > x(self.range.0));
            for x in ends {
                area.draw(&whisker(vec![(x, middle - 4), (x, middle + 4)]))?;
            }
        }
        let behind = style(TEXT, HPos::Left, VPos::Center);
        area.draw(&Text::new(
            figure(self.axis, group, bar),
            (end + 8, middle),
            behind,
        ))?;
        Ok(())
    }
}
