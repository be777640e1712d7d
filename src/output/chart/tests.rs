use std::fs;
use std::path::Path;

use super::*;

fn seconds(figure: f64) -> String {
    match figure < 1.0 {
        true => format!("{:.1} ms", figure * 1e3),
        false => format!("{figure:.2} s"),
    }
}

fn kibibytes(figure: f64) -> String {
    format!("{} KiB", figure / 1024.0)
}

const TIME: Axis<'_> = Axis {
    title: "creation time, less is better",
    figure: seconds,
};
const SIZE: Axis<'_> = Axis {
    title: "chunk",
    figure: kibibytes,
};
const RATE: Axis<'_> = Axis {
    title: "GB/s",
    figure: |figure| format!("{figure:.0}"),
};

fn bar(label: &str, value: f64, stdev: Option<f64>) -> Bar {
    Bar {
        label: label.to_owned(),
        value,
        stdev,
        baseline: false,
    }
}

/// Two sizes, with the first way as the baseline.
fn groups() -> Vec<Group> {
    let group = |size: &str, factor: f64| Group {
        title: format!("{size} guest"),
        bars: vec![
            Bar {
                baseline: true,
                ..bar("fresh, 1 worker", 0.5 * factor, Some(0.02 * factor))
            },
            bar(
                "recycled, uncached stores, all workers",
                0.08 * factor,
                Some(0.01 * factor),
            ),
            bar("recycled, clean", 0.01, None),
        ],
    };
    vec![group("1 GiB", 1.0), group("4 GiB", 4.5)]
}

fn line(label: &str, series: usize, dashed: bool, figures: [f64; 3]) -> Line {
    let sizes = [4096.0, 65536.0, 1_048_576.0];
    Line {
        label: label.to_owned(),
        series,
        dashed,
        points: sizes.into_iter().zip(figures).collect(),
    }
}

fn methods() -> Vec<Line> {
    vec![
        line("cached, 1 thread", 0, false, [9.0, 9.5, 9.25]),
        line("movnti, 1 thread", 1, false, [5.0, 20.0, 24.5]),
        line("movnti, 2 threads", 1, true, [9.0, 40.0, 46.0]),
    ]
}

/// Compares with a file beside this one. A chart that changed has to be looked at, not read.
#[track_caller]
fn is_drawn_as(found: &str, name: &str) {
    let wanted = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/output/chart/tests")
        .join(name);
    if fs::read_to_string(&wanted).is_ok_and(|wanted| wanted == found) {
        return;
    }
    let now = std::env::temp_dir().join(name);
    fs::write(&now, found).expect("a temporary file");
    panic!(
        "The chart is not {}: look at {} and, if it is right, put it there",
        wanted.display(),
        now.display()
    );
}

#[test]
fn fixed_bars_have_their_chart() {
    let chart = bars("Creating a VM\nAMD EPYC, Linux 6.18", TIME, &groups()).expect("figures");
    is_drawn_as(&chart, "bars.svg");
}

#[test]
fn fixed_lines_have_their_chart() {
    let mark = Some((16384.0, "movnti is ahead from 16 KiB on".to_owned()));
    let chart = lines(
        "Clearing\nAMD EPYC, Linux 6.18",
        SIZE,
        RATE,
        &methods(),
        mark,
    )
    .expect("figures");
    is_drawn_as(&chart, "lines.svg");
}

/// The value of an attribute.
fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let (_, rest) = tag
        .split_once(&format!(" {name}=\""))
        .unwrap_or_else(|| panic!("{name}: {tag}"));
    rest.split_once('"').expect("quoted").0
}

/// Every text of a chart: its left and right edge at most, and itself. Turned ones are left out.
fn texts(chart: &str) -> Vec<(i32, i32, String)> {
    let mut found = Vec::new();
    for element in chart.split("<text ").skip(1) {
        let (tag, rest) = element.split_once(">\n").expect("a tag");
        let tag = format!(" {tag}");
        if tag.contains("transform=") {
            continue;
        }
        let text = rest
            .split_once("\n</text>")
            .expect("its end")
            .0
            .trim()
            .to_owned();
        let x: i32 = attribute(&tag, "x").parse().expect("pixels");
        let wide = width(&text);
        let (left, right) = match attribute(&tag, "text-anchor") {
            "start" => (x, x + wide),
            "end" => (x - wide, x),
            _ => (x - wide / 2, x + wide / 2),
        };
        found.push((left, right, text));
    }
    found
}

#[test]
fn no_text_is_cut_off_by_the_edge() {
    let long = "a way with a name so long that nobody would say it aloud in one breath";
    let mut groups = groups();
    groups[0].bars.push(bar(long, 3.0, Some(2.9)));
    groups[1].bars.push(bar("x", 0.000_012, None));
    let mark = |size| {
        Some((
            size,
            "movnti is ahead from here on, whatever that means".to_owned(),
        ))
    };
    for chart in [
        bars("Creating a VM", TIME, &groups),
        lines("Clearing", SIZE, RATE, &methods(), mark(4096.0)),
        lines("Clearing", SIZE, RATE, &methods(), mark(1_048_576.0)),
        lines("Clearing", SIZE, RATE, &methods()[..1], None),
    ] {
        let chart = chart.expect("figures");
        let texts = texts(&chart);
        assert!(texts.len() > 6, "{texts:?}");
        for (left, right, text) in texts {
            assert!(left >= 0 && right <= 1000, "{left} to {right}: {text}");
        }
    }
}

#[test]
fn every_bar_has_its_label_and_its_figure() {
    let chart = bars("Creating a VM", TIME, &groups()).expect("figures");
    for text in [
        "fresh, 1 worker",
        "500.0 ms ± 20.0 ms · baseline",
        "80.0 ms ± 10.0 ms · ×0.16",
        "10.0 ms · ×0.020",
        "2.25 s ± 90.0 ms · baseline",
        "1 GiB guest",
        "creation time, less is better (logarithmic)",
    ] {
        assert!(
            texts(&chart).iter().any(|(.., found)| found == text),
            "{text}: {chart}"
        );
    }
}

#[test]
fn the_legend_is_in_the_order_in_which_lines_end() {
    let chart = lines("Clearing", SIZE, RATE, &methods(), None).expect("figures");
    let names = texts(&chart).into_iter().map(|(.., text)| text);
    let names: Vec<String> = names.filter(|text| text.contains("thread")).collect();
    assert_eq!(
        names,
        ["movnti, 2 threads", "movnti, 1 thread", "cached, 1 thread"]
    );
}

#[test]
fn one_point_is_a_chart_too() {
    let mut one = methods();
    one.iter_mut().for_each(|line| line.points.truncate(1));
    assert!(lines("Clearing", SIZE, RATE, &one, None).is_ok());
    let single = Group {
        title: String::new(),
        bars: vec![bar("one", 1.0, Some(2.0))],
    };
    assert!(
        bars("Creating a VM", TIME, &[single]).is_ok(),
        "σ above the figure"
    );
}

#[test]
fn figures_without_a_place_on_the_axis_are_refused() {
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let group = Group {
            title: String::new(),
            bars: vec![bar("odd", value, None)],
        };
        let error = bars("Creating a VM", TIME, &[group]).expect_err("no place");
        assert!(error.to_string().contains("'odd'"), "{error}");
    }
    let odd = line("odd", 0, false, [1.0, f64::NAN, 1.0]);
    assert!(lines("Clearing", SIZE, RATE, &[odd], None).is_err());
    assert_eq!(bars("Creating a VM", TIME, &[]), Err(ChartError::Empty));
    assert_eq!(
        lines("Clearing", SIZE, RATE, &[], None),
        Err(ChartError::Empty)
    );
}

#[test]
fn what_is_markup_in_a_label_is_text_in_the_chart() {
    let group = Group {
        title: "<b> & \"quotes\"".to_owned(),
        bars: vec![bar("<script>", 1.0, None)],
    };
    let chart = bars("a < b & c", TIME, &[group]).expect("figures");
    assert!(
        !chart.contains("<script>") && !chart.contains("<b>"),
        "{chart}"
    );
    assert!(chart.contains("<title>a &lt; b &amp; c</title>"), "{chart}");
}
