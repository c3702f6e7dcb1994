#!/bin/bash
{%- for line in about %}
# {{ line }}
{%- endfor %}
#
# Written by `fsmatrix submit`; it also runs by hand: cd here, then sbatch {{ script }}
{%- for line in directives %}
{{ line }}
{%- endfor %}
{%- for option in options %}
#SBATCH {{ option }}
{%- endfor %}

set -e
{%- if modules %}

# Lmod and Environment Modules are shell functions that login shells define
type module > /dev/null 2>&1 || . /etc/profile
{%- for name in modules %}
module load {{ name | quote }}
{%- endfor %}
{%- endif %}
{%- if venv %}

. {{ (venv ~ "/bin/activate") | quote }}
{%- endif %}
{%- if conda %}

eval "$(conda shell.bash hook)"
conda activate {{ conda | quote }}
{%- endif %}
{%- if environment %}
{% for name, value in environment %}
export {{ name }}={{ value | quote }}
{%- endfor %}
{%- endif %}

cd {{ directory | quote }}
{%- if warned %}
# exec: the warning before the limit ({{ signal }}) reaches fsmatrix, which then ends its run cleanly
{%- endif %}
exec {{ command }}
