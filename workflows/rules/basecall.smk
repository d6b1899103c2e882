# For samples without a BAM. Tags are carried from the basecaller through the aligner: leech needs mv, ts and ns.


# A rule of its own, so that samples which are basecalled at the same time do not fetch one model into one folder twice.
rule download_basecaller:
    output:
        model=directory(f"{config['results']}/basecaller/{config['basecall']['model']}"),
    log:
        f"{config['results']}/logs/download_basecaller.log",
    benchmark:
        f"{config['results']}/benchmarks/download_basecaller.tsv"
    conda:
        "../envs/align.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=config["runtime"]["install"],
    params:
        name=config["basecall"]["model"],
        folder=lambda wildcards, output: Path(output.model).parent,
    shell:
        "dorado download --model {params.name:q} --models-directory {params.folder:q} &> {log:q}"


rule basecall:
    input:
        pod5=lambda wildcards: SAMPLES[wildcards.sample]["pod5"],
        model=rules.download_basecaller.output.model,
    output:
        bam=temp(f"{config['results']}/basecalls/{{sample}}.bam"),
    log:
        f"{config['results']}/logs/basecall/{{sample}}.log",
    benchmark:
        f"{config['results']}/benchmarks/basecall/{{sample}}.tsv"
    conda:
        "../envs/align.yaml"
    threads: 4
    resources:
        mem_mb=32000,
        runtime=config["runtime"]["basecall"],
        gpu=pipeline.gpu_count(config, config["basecall"]["gpus"]),
        gres=pipeline.gpu_gres(config, config["basecall"]["gpus"]),
        lsf_extra=pipeline.lsf_gpus(config["basecall"]["gpus"]),
        # SLURM may spread --gpus over nodes, and one process tree uses only those of its own.
        nodes=1,
    params:
        device="cuda:all" if config["basecall"]["gpus"] else "cpu",
    shell:
        "dorado basecaller {input.model:q} {input.pod5:q} --recursive --emit-moves --device {params.device}"
        " > {output.bam:q} 2> {log:q}"


rule index_reference:
    input:
        reference=config["reference"],
    output:
        multiext(
            f"{config['results']}/aligner/reference.fa",
            ".amb",
            ".ann",
            ".bwt",
            ".pac",
            ".sa",
        ),
    log:
        f"{config['results']}/logs/index_reference.log",
    benchmark:
        f"{config['results']}/benchmarks/index_reference.tsv"
    conda:
        "../envs/align.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=config["runtime"]["align"],
    params:
        prefix=lambda wildcards, output: output[0].removesuffix(".amb"),
    shell:
        "bwa index -p {params.prefix:q} {input.reference:q} &> {log:q}"


rule align_bwa:
    input:
        bam=rules.basecall.output.bam,
        index=rules.index_reference.output,
    output:
        bam=f"{config['results']}/alignments/bwa/{{sample}}.bam",
    log:
        f"{config['results']}/logs/align_bwa/{{sample}}.log",
    benchmark:
        f"{config['results']}/benchmarks/align_bwa/{{sample}}.tsv"
    conda:
        "../envs/align.yaml"
    threads: config["basecall"]["threads"]
    resources:
        mem_mb=8000,
        runtime=config["runtime"]["align"],
    params:
        prefix=lambda wildcards, input: input.index[0].removesuffix(".amb"),
    shell:
        "(samtools fastq -T '*' {input.bam:q}"
        " | bwa mem -C -t {threads} -W 13 -k 6 -T 20 -x ont2d {params.prefix:q} -"
        " | samtools sort -o {output.bam:q} -) 2> {log:q}"


rule align_minimap2:
    input:
        bam=rules.basecall.output.bam,
        reference=config["reference"],
    output:
        bam=f"{config['results']}/alignments/minimap2/{{sample}}.bam",
    log:
        f"{config['results']}/logs/align_minimap2/{{sample}}.log",
    benchmark:
        f"{config['results']}/benchmarks/align_minimap2/{{sample}}.tsv"
    conda:
        "../envs/align.yaml"
    threads: config["basecall"]["threads"]
    resources:
        mem_mb=8000,
        runtime=config["runtime"]["align"],
    shell:
        "(samtools fastq -T '*' {input.bam:q}"
        " | minimap2 -y -a -x map-ont -k 6 -w 3 -t {threads} {input.reference:q} -"
        " | samtools sort -o {output.bam:q} -) 2> {log:q}"
