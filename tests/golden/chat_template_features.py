"""Small templates, one for each thing of the language; VARIABLES are what they can see."""

VARIABLES = {
    "text": "  Straße und Fluß, naïve Σίσυφος 😀  ",
    "words": ["pear", "Apple", "fig", "apple"],
    "numbers": [3, -1, 2, 10],
    "nested": {"a": {"b": [1, 2.5, None, True, "x"]}, "z": {}, "items": "member"},
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 4}, {"name": "Cy", "age": 17.5, "tags": []}],
    "n": 7, "f": 2.5, "yes": True, "no": False, "nothing": None, "empty": "", "quote": "it's \"so\"\n\t\\ é\u200b\x01",
    "lines": "one\ntwo\n\n  three\r\nfour",
}

FEATURES = r"""
plain text
{{ 'a' }}
a {{- ' b ' -}} c
a {{ ' b ' }} c
  {% if yes %}x{% endif %}  |
x  {%- if yes -%}  y  {%- endif -%}  z
x  {%+ if yes +%}  y  {%+ endif %}  z
a{# comment #}b{#- c -#}   d
a  {#- comment -#}  b
{# unfinished {{ }} {% %} #}ok
{{ 1 }}{{ 2.0 }}{{ 12345678901234567890.0 }}{{ 0.1 + 0.2 }}
{{ true }}{{ True }}{{ false }}{{ none }}{{ None }}{{ missing }}|
{{ [1, 'a', "b'c", none, true, 1.0, [], {}, ()] }}
{{ {'a': 1, "b": [1, 2], 3: none} }}{{ (1,) }}{{ (1, 2) }}{{ () }}
{{ 1, 2 }}
{{ quote }}
{{ 'a' 'b' "c" }}
{{ 7 + 2 }} {{ 7 - 9 }} {{ 7 * 3 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }}
 {{ 6.0 / 4 }} {{ 1 + 2.5 }}
{{ true + true }} {{ 3 * false }} {{ -true }} {{ +n }} {{ -f }} {{ - -3 }}
{{ 'ab' * 3 }}{{ 3 * 'x' }}{{ 'x' * -1 }}|{{ [1] + [2] }}{{ (1,) + (2,) }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] ~ missing }}|
{{ (1 + 2) ~ 3 }} {{ 2 * 3 ~ 4 }} {{ 'a' ~ 'b' | upper }}
{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' == "a" }} {{ 'a' != 'b' }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ (1, 2) == [1, 2] }}
{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1.0} }} {{ none == none }} {{ missing == missing2 }} {{ missing == none }} {{ 1 == '1' }} {{ [] == [] }}
{{ 'a' in 'cat' }} {{ '' in '' }} {{ 'x' not in 'cat' }} {{ 2 in [1, 2.0] }} {{ 'a' in nested }} {{ 'b' in nested.a }} {{ 1 in (1,) }} {{ 'k' in missing }} {{ not 'a' in 'b' }}
{{ 0 or 'x' }} {{ '' or none }} {{ 1 and 2 }} {{ [] and 1 }} {{ not [] }} {{ not 1 }} {{ 0 or '' or 'z' }} {{ yes and not no }}
{{ 'a' if yes else 'b' }}{{ 'a' if no else 'b' }}{{ 'a' if no }}|{{ 'a' if no else 'b' if no else 'c' }}{{ ('x' if no) is defined }}
{{ words[0] }}{{ words[-1] }}{{ words[9] }}|{{ words.0 }}{{ words[true] }}{{ nested['a']['b'][4] }}{{ nested.a.b[1] }}{{ nested.zz }}|{{ nested['zz'] is defined }}
{{ words[1:] }}{{ words[:-1] }}{{ words[::-1] }}{{ words[1:3:1] }}{{ 'añ😀b'[-3:3] }}{{ words[:] }}{{ words[10:] }}{{ words[-99:2] }}{{ words[none:none:none] }}{{ words[2:1] }}
{{ text[2:8] }}|{{ text[::-1] }}|{{ text[2] }}{{ text[-3] }}{{ text[99] }}|{{ text|length }}{{ (1, 2, 3)[1:] }}
{{ nested['items'] }}{{ nested.values()|list }}{{ nested.get('q') }}{{ nested.get('q', 1) }}{{ nested.get('z') }}
{% for k, v in nested.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in nested %}{{ k }}{{ loop.last }}{% endfor %}{% for c in 'añ😀' %}[{{ c }}]{% endfor %}
{% for k, v in nested|items %}{{ k }},{% endfor %}{% for x in missing|items %}x{% endfor %}{% for x in missing %}x{% else %}none{% endfor %}
{% for n in numbers if n > 0 %}{{ n }}:{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% else %}no{% endfor %}
{% for n in numbers if n > 99 %}{{ n }}{% else %}no{% endfor %}{% for n in [] %}x{% else %}empty{% endfor %}
{% for n in range(5) %}{% if n == 1 %}{% continue %}{% elif n == 3 %}{% break %}{% endif %}{{ n }}{% else %}never{% endfor %}
{% for a in range(2) %}{% for b in range(2) %}{{ a }}{{ b }}{{ loop.index }} {% endfor %}{{ loop.index }};{% endfor %}
{% for a, (b, c) in [(1, (2, 3)), [4, 'xy']] %}{{ a }}{{ b }}{{ c }} {% endfor %}
{% set x = 1 %}{% for i in range(3) %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% for i in range(2) %}{{ y is defined }}{% set y = i %}{{ y }}{% endfor %}{{ y is defined }}
{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] is defined }}
{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set e = 1, 2 %}{{ e }}
{% set block %}a {{ n }} {% set inner = 1 %}b{% endset %}[{{ block }}]{{ inner is defined }}{{ block is string }}
{% macro m(a, b=2, c=a) %}<{{ a }},{{ b }},{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(c=5, a=4) }}{{ m() }}
{% macro m(x) %}{{ n }}{{ x }}{{ y is defined }}{% endmacro %}{% for y in [1] %}{{ m(y) }}{% endfor %}{% set out = m('q') %}{{ out|length }}
{% macro deep(k) %}{{ k }}{% if k > 0 %}{{ deep(k - 1) }}{% endif %}{% endmacro %}{{ deep(5) }}
{% macro late() %}{{ later }}{% endmacro %}{% set later = 'now' %}{{ late() }}
{% for i in range(2) %}{% macro inner() %}{{ i }}{% endmacro %}{{ inner() }}{% endfor %}
{% generation %}{% set hidden = 1 %}gen{% endgeneration %}{{ hidden is defined }}
{{ text|trim }}|{{ text.strip() }}|{{ 'xxaxx'|trim('x') }}{{ 'xxaxx'.strip('xy') }}{{ 'abc'.lstrip('ab') }}{{ 'abc'.rstrip('cb') }}{{ none|trim }}{{ 5|trim }}
{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ ''.split(',') }}{{ ''.split() }}{{ ' a  b c '.split(none, 1) }}{{ 'aXXbXX'.split('XX') }}{{ 'x</t>y</t>z'.split('</t>')[-1] }}{{ 'abc'.split('</t>')[0] }}{{ 'a b'.split(sep=' ', maxsplit=1) }}
{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('bc') }}{{ 'abc'.startswith('') }}
{{ 'aXbX'.replace('X', '-') }}{{ 'aaa'.replace('aa', 'b') }}{{ ''.replace('a', 'x') }}{{ 'aéa'|replace('a', 'ü') }}{{ 'aaa'|replace('a', '') }}{{ 121|replace(1, 'x') }}
{{ 'a😀bcb'.find('b') }}{{ 'abc'.find('z') }}
{{ [1, 2]|join }}{{ [1, none, 'a']|join('-') }}{{ people|join(', ', attribute='name') }}{{ 'abc'|join('.') }}{{ missing|join }}|
{{ words|map('upper')|join(',') }}{{ people|map(attribute='name')|list }}{{ people|map(attribute='tags', default='-')|list }}{{ words|map('replace', 'p', 'b')|list }}{{ [[1, 2], [3]]|map('length')|list }}{{ [1, 2]|map('string')|list }}
{{ numbers|select('odd')|list }}{{ numbers|reject('odd')|list }}{{ [0, 1, '', 'a']|select|list }}{{ numbers|select('>', 2)|list }}{{ words|select('in', ['fig'])|list }}
{{ people|selectattr('tags')|map(attribute='name')|list }}{{ people|selectattr('age', 'gt', 10)|map(attribute='name')|list }}{{ people|rejectattr('name', 'equalto', 'bob')|list|length }}{{ people|selectattr('tags', 'defined')|list|length }}{{ people|rejectattr('tags', 'undefined')|map(attribute='name')|join }}
{{ words|first }}{{ words|last }}{{ []|first }}|{{ 'añ'|last }}{{ nested|first }}{{ nested|last }}{{ numbers|select('odd')|first }}{{ words|length }}{{ nested|count }}{{ missing|length }}
{{ words|sort }}{{ numbers|sort }}
{{ words|unique|list }}{{ words|reverse|list }}{{ 'abc'|reverse }}
{{ missing|default('d') }}{{ empty|default('d') }}|{{ empty|d('d', true) }}{{ nothing|default('d', boolean=true) }}{{ missing|default }}|{{ no|default(1) }}
{{ nested|tojson }}{{ quote|tojson }}{{ {}|tojson }}{{ []|tojson }}{{ (1, 2)|tojson }}
{{ nested|tojson(indent=2) }}{{ [[], {}, [1]]|tojson(indent=4) }}{{ {'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(indent=none) }}{{ {'a': [1]}|tojson(indent=0) }}
{{ 1 is defined }}{{ missing is defined }}{{ missing is undefined }}{{ none is none }}{{ nothing is none }}{{ missing is none }}{{ missing is not none }}{{ nested.q is defined }}
{{ 'a' is string }}{{ 1 is string }}{{ nested is mapping }}{{ words is mapping }}{{ words is sequence }}{{ 'a' is sequence }}{{ nested is sequence }}{{ 1 is sequence }}{{ 'a' is iterable }}{{ 1 is iterable }}{{ missing is iterable }}{{ missing is sequence }}{{ nothing is iterable }}{{ words|map('upper') is iterable }}{{ words|map('upper') is sequence }}
{{ 1 is number }}{{ 1.5 is number }}{{ true is number }}{{ '1' is number }}{{ 1 is integer }}{{ true is integer }}{{ 1.0 is float }}{{ 1 is float }}{{ true is boolean }}{{ 1 is boolean }}{{ yes is true }}{{ 1 is true }}{{ no is false }}{{ nothing is false }}
{{ 3 is odd }}{{ 4 is even }}{{ -3 is odd }}{{ 1 is eq 1 }}{{ 1 is equalto(2) }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 1 is le 1 }}{{ 2 is gt 1 }}{{ 2 is ge 2 }}{{ 1 is in [1] }}{{ 'a' is in 'cat' }}{{ 2 is not in [1] }}
{{ range is defined }}{{ dict is defined }}{{ raise_exception is defined }}{{ strftime_now is defined }}{{ no_such_function is defined }}
{{ range(3)|list }}{{ range(2, 9, 3)|list }}{{ range(3, 0, -1)|list }}{{ range(1, 5)|length }}{{ 3 in range(5) }}
{{ dict(a=1, b='x') }}{{ dict({'a': 1}, a=2) }}{{ dict() }}
{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %p %I') }}|{{ strftime_now('%z%Z%f%%x') }}|{{ strftime_now('') }}|
{{ ([1, 2]|map('string')) is defined }}{% set it = words|map('upper') %}{{ 'x' if it else 'y' }}{{ it|first }}
{{ 'a' + 'b' | upper + 'c' }}{{ ('a' + 'b') | upper }}{{ words|length - 1 }}{{ (words|length) * 2 }}{{ not words is mapping }}{{ words is not mapping and yes }}
{%- if n == 1 %}a{%- elif n == 7 %}b{%- elif yes %}c{%- else %}d{%- endif %}{% if no %}x{% else %}y{% endif %}{% if words %}t{% endif %}{% if missing %}m{% endif %}
{{ {'a': {'b': {}}} }}{{ {'a': 1}['a'] }}{{ {'x': [1, {'y': 2}]}.x[1].y }}{{ [{}, {'a': '}}'}] }}{{ "%}" }}{{ '{{' }}
{{ words | map('upper') | select('in', ['FIG', 'PEAR']) | join(' and ') }}
{{ messages | length }}{{ messages[0].role }}{{ add_generation_prompt }}{{ tools }}{{ tools is defined }}{{ documents is none }}
{{ loop is defined }}{{ self_made is defined }}{% set n = 8 %}{{ n }}{% set tools = [1] %}{{ tools }}
{{ ''.__class__ }}|{{ n.real_name }}|{{ nothing.x }}|{{ yes.x }}|{{ words.x }}|{{ 'a'.x is defined }}
{{ 'a' in ['a'] and 'b' not in ['a'] or no }}{{ 1 if 'a' in 'abc' and n > 3 else 2 }}{{ (n > 3) ~ (n < 3) }}{{ 1 in [1] == true }}
{{ {'a': 1, 'a': 2} }}{{ {1: 'a', 1.0: 'b', true: 'c'} }}{{ {(1, 2): 3}[(1, 2)] }}{{ {none: 1}[none] }}
{{ messages[0]['role'] + ' said ' + messages[0]['content'] }}{{ messages|map(attribute='role')|list }}
{{ [1, [2, [3, [4]]]] }}{{ [[1, 2], [3]]|map('join', '+')|join(';') }}{{ [3, 1]|sort|reverse|list }}{{ 'b a'.split()|sort|join }}
{{ 'a\tb\\c\'d\"e\n\x41\u00e9\q' }}{{ ['"', "'", '\'"', '\n\t\\ é😀'] }}{{ [0.1, 1.0, -2.5] }}
{% for w in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% set ns = namespace(n=0, found=false) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}{{ ns.found }}{{ ns.other }}|
{{ 'Grün, naïve 😀 ψ'|upper }}{{ 'GRÜN, NAÏVE 😀 Ψ'.lower() }}{{ 'hELLO wORLD'|title }}{{ 'hELLO wORLD'.title() }}{{ 'hELLO wORLD-4'|capitalize }}{{ 'user'.capitalize() }}{{ ''|capitalize }}
{{ [1, 2.0, none, true, 'é😀<&>\x01\x7f', 100000000000000000000.0]|tojson }}{{ (12345678901234567890.0, 0.00001, 1000000000000000.0, 10000000000000000.0) }}
{{ text | trim | replace('S', 's') | length }}{{ 3 in range(5) }}{{ 'z' in nested.keys() }}{{ range(5)|length }}{{ nested.items()|length }}{{ 'x' if range(0) else 'y' }}
{% for k, v in nested.items() if k != 'a' %}{{ loop.index }}{{ k }}{{ loop.last }}{% endfor %}
""".strip("\n")

# The same of several lines.
LINES = [
    "{% if yes %}\na\n{% endif %}\n{% for w in words %}\n  {{ w }}\n{% endfor %}\n\n",
    "{% if yes -%}   a   {%- endif %}   {% if yes %}\n\nb{% endif %}\n\n\t{% if yes %}\ntab{% endif %}\n{{ n }}\n{{ n -}}\n\n{{- n }}\n",
    "a\r\nb\rc{{ 'x\r\ny' }}\r\n{% if yes %}\r\nd{% endif %}\r\n\r\n",
    "  {# comment #}\n  a {# b #}\n{#- c -#}\n\n  d\n  {#+ e +#}\n f",
    "{{ n\n }}{{\n n}}{% if\n yes %}c{% endif\n%}\n",
    "\u00a0{%- if yes -%}\u2003a\u2028{%- endif -%}\u3000b\u00a0{% if yes %}c{% endif %}",
    "{% set x %}\n  a\n{% endset %}\n[{{ x }}]\n{% macro m() %}\n  b\n{% endmacro %}\n[{{ m() }}]",
    "{% for x in [1, 2] -%}\n  {{ x }}\n{%- endfor %}\n{%+ if yes %}  z\n  {%+ endif %}\n",
]

# What Jinja or Python refuses.
REFUSED = r"""
{{ missing.x }}
{{ missing['x'] }}
{{ missing + 1 }}
{{ 'a' + missing }}
{{ missing() }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ none + 'a' }}
{{ [1] + (2,) }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ 1 in 2 }}
{{ 1 in 'a' }}
{{ 'a' in none }}
{{ n.x.y }}
{{ n() }}
{{ nothing|length }}
{{ 5|length }}
{{ nothing|join }}
{% for x in nothing %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% set a, b = 1 %}
{% set words.x = 1 %}
{% set missing.x = 1 %}
{{ words.append(1) }}
{{ nested.update({'a': 1}) }}
{{ words.pop() }}
{{ words|nofilter }}
{{ words is notest }}
{{ words|map|list }}
{{ words|map('nofilter')|list }}
{{ words|select('notest')|list }}
{{ 'a'.split('') }}
{{ words[::0] }}
{{ words['a':] }}
{{ missing[1:] }}
{{ nested[1:] }}
{{ range(1000000)|list }}
{{ range(0, 5, 0)|list }}
{{ range('a') }}
{{ missing|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ words|map('upper')|tojson }}
{{ words|map('upper')|length }}
{{ words|map('upper')|last }}
{{ 'a' is odd }}
{{ missing is odd }}
{{ [1, 'a']|sort }}
{{ {[]: 1} }}
{{ {'a': 1}[[]] + 1 }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}
{{ namespace(_x=1) }}
{% set ns = namespace() %}{% set ns._x = 1 %}
{{ raise_exception('No way: ' ~ n ~ '!') }}
{{ raise_exception("one\ntwo") }}
{% if yes %}{{ raise_exception('inside') }}{% endif %}
{% for x in words|items %}{% endfor %}
{{ -'a' }}
{{ not }}
{{ 1 + }}
{{ (1 }}
{{ [1 }}
{{ {'a' 1} }}
{{ 'a }}
{{ a b }}
{{ }}
{{ 1 | }}
{{ $ }}
{{ 1 is }}
{{ x is defined is defined }}
{% if %}{% endif %}
{% if yes %}
{% endif %}
{% for x in words %}
{% for in words %}{% endfor %}
{% for x words %}{% endfor %}
{% endfor %}
{% else %}
{% nosuch %}
{% set %}
{% set x = %}
{% set 1 = 2 %}
{% set none = 2 %}
{% set x %}
{% macro %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{% break %}
{% continue %}
{# comment
{% if yes
{{ n
{{ n %}
{% if yes }}{% endif %}
{{ f(a=1, 2) }}
{{ 1)}}
{{ (1] }}
{% extends 'x' %}
{% include 'x' %}
{% import 'x' as y %}
{% generation %}
""".strip("\n")
