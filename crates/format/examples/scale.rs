//! Size and times of an index as large as ImageNet-21k's: `scale [SAMPLES]`.
//!
//! The listing is made first and is not in the times.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Instant;

use forebay_format::{Index, IndexBuilder, Sample};

fn main() -> Result<(), Box<dyn Error>> {
    let samples: u32 = std::env::args()
        .nth(1)
        .map_or(Ok(14_100_000), |text| text.parse())?;
    let classes = 21_841.min(samples.max(1));
    let per_class = samples.div_ceil(classes);

    // As a listing holds it: one arena of names, and numbers beside it.
    let mut arena = String::new();
    let mut rows = Vec::with_capacity(samples as usize);
    for class in 0..classes {
        let mut numbers: Vec<String> = (0..per_class)
            .map(|i| (i * 37 % 50_000 + 1).to_string())
            .collect();
        numbers.sort();
        for (i, number) in numbers.iter().enumerate() {
            if rows.len() == samples as usize {
                break;
            }
            let start = arena.len();
            let folder = 1_440_764 + class * 7;
            arena.push_str(&format!("n{folder:08}/n{folder:08}_{number}.JPEG"));
            let random = (u64::from(class) << 32 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            rows.push((
                start,
                arena.len(),
                50_000 + random % 100_000,
                i64::from(class),
                random,
            ));
        }
    }

    let start = Instant::now();
    let mut builder = IndexBuilder::new("s3://bucket/imagenet21k", "class-folders");
    for class in 0..classes {
        builder.class(&format!("n{:08}", 1_440_764 + class * 7));
    }
    for &(from, to, length, label, validator) in &rows {
        builder.push(Sample {
            object: &arena[from..to],
            offset: 0,
            length,
            label,
            validator,
        })?;
    }
    let path = std::env::temp_dir().join("forebay-scale.index");
    builder.write_to(&mut std::fs::File::create(&path)?)?;
    let encoded = start.elapsed();
    let file = std::fs::metadata(&path)?.len();
    let bytes = std::fs::read(&path)?;
    let start = Instant::now();
    let index = Index::parse(bytes)?;
    let opened = start.elapsed();
    let start = Instant::now();
    index.verify()?;
    let verified = start.elapsed();

    let start = Instant::now();
    let mut name = String::new();
    let mut sum = 0;
    for i in 0..1_000_000u64 {
        let sample = (i.wrapping_mul(2_654_435_761) % u64::from(index.len())) as u32;
        index.name_into(sample, &mut name)?;
        sum += name.len() as u64 + index.length(sample)?;
    }
    let looked_up = start.elapsed();
    let wrong = rows.iter().enumerate().step_by(1009).any(|(i, row)| {
        index.name_into(i as u32, &mut name).is_err() || name != arena[row.0..row.1]
    });
    std::fs::remove_file(path)?;
    println!("samples        {}", index.len());
    println!(
        "file           {:.1} MB ({:.1} bytes a sample)",
        file as f64 / 1e6,
        file as f64 / f64::from(samples)
    );
    println!("encode, write  {:.2} s", encoded.as_secs_f64());
    println!("open           {:.2} ms", opened.as_secs_f64() * 1e3);
    println!("verify         {:.0} ms", verified.as_secs_f64() * 1e3);
    println!(
        "random lookup  {:.0} ns (check {sum})",
        looked_up.as_secs_f64() * 1e3
    );
    if wrong {
        Err("a name came back wrong".into())
    } else {
        Ok(())
    }
}
